"""Validation samples selected from the training samples, with a seed of their own."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from manyheads.runner.data.read_ahead import ReadAhead
from manyheads.runner.errors import ConfigurationError

if TYPE_CHECKING:  # the parent only checks, and starts sooner without it
    import numpy as np

ALL = 1  # the fraction by which an evaluation measures all samples of other data than its weights were trained on
KEYS = ("val_fraction", "folds", "fold", "split_seed")


@dataclass(frozen=True)
class Partition:
    """A fraction ``val_fraction``, or part ``fold`` of ``folds``; the same samples whatever the run's own seed is."""

    val_fraction: float | None
    folds: int | None
    fold: int | None
    seed: int

    @staticmethod
    def of(
        fraction: float | None, *, folds: int | None = None, fold: int | None = None, seed: int = 0
    ) -> "Partition | None":
        """The partition that these keys ask for; None for the option's own splits. Raises ConfigurationError."""
        if fraction is None and folds is None and fold is None:
            return None
        if fraction is not None and (folds is not None or fold is not None):
            raise ConfigurationError.at(
                "data.val_fraction",
                fraction,
                f" and data.fold={fold} of data.folds={folds} are two ways to select the validation samples. Set one "
                "of them to null.",
            )
        if fraction is None and (folds is None or fold is None or fold >= folds):
            raise ConfigurationError.at(
                "data.fold",
                fold,
                f" data.folds={folds}: set both, fold from 0 to folds - 1, such as data.folds=5 data.fold=0,1,2,3,4 in "
                "a sweep (-m).",
            )
        return Partition(fraction, folds, fold, seed)

    def indices(self, size: int, *, train: bool) -> "np.ndarray":
        """Indices, in order, of the samples of ``size`` to train on, or to validate on. Raises ConfigurationError."""
        import numpy as np

        if self.val_fraction == ALL:  # an evaluation builds training samples too, and takes none
            return np.arange(size)
        order = np.random.RandomState(self.seed % 2**32).permutation(size)
        validates = np.zeros(size, bool)
        if self.val_fraction is not None:
            validates[order[: round(size * self.val_fraction)]] = True
        else:
            validates[order[self.fold :: self.folds]] = True
        if not 0 < validates.sum() < size:
            raise ConfigurationError.at(
                "data.val_fraction",
                self.val_fraction,
                f" data.folds={self.folds}: of {size} training samples none is "
                f"left to {'train on' if validates.any() else 'validate on'}. Choose a value in between.",
            )
        return np.flatnonzero(validates != train)


class ChosenSamples(Sequence[Any]):
    """Some items of a sequence, each fetched on access."""

    def __init__(self, items: Sequence[Any], indices: "np.ndarray"):
        self.items, self.indices = items, indices

    def __len__(self) -> int:
        return len(self.indices)

    @property
    def read_ahead(self) -> ReadAhead | None:
        """How the items are read ahead."""
        ahead: ReadAhead | None = getattr(self.items, "read_ahead", None)
        return ahead and ahead.of(self.indices)

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return ChosenSamples(self.items, self.indices[index])
        return self.items[int(self.indices[index])]
