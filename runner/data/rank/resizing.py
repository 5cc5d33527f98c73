"""Progressive resizing: images are small in early epochs, which makes these cheaper, and grow to their full size."""

from dataclasses import dataclass

from manyheads.runner.data.samples import Dataset
from manyheads.runner.errors import ConfigurationError


@dataclass(frozen=True)
class Resizing:
    """The size of training images by epoch, which grows linearly from ``first`` to ``last`` pixels per side.

    ``start``, ``end``: fractions of the ``epochs`` at which growth begins and ends; ``step``: sizes in between are
    multiples of it. Sources: Howard 2018 (https://www.fast.ai/posts/2018-04-30-dawnbench-fastai.html); the three
    phases are those of MosaicML's composer (https://docs.mosaicml.com/projects/composer, progressive resizing).
    """

    first: int
    last: int
    start: float
    end: float
    step: int
    epochs: int

    def side(self, epoch: int) -> int:
        """Height and width of training images in epoch ``epoch``, from 0; depends on nothing else."""
        share = epoch / self.epochs
        if share <= self.start:
            return self.first
        if share >= self.end:
            return self.last
        grown = self.first + (self.last - self.first) * (share - self.start) / (self.end - self.start)
        return min(self.last, max(self.first, round(grown / self.step) * self.step))


def build_resizing(
    dataset: Dataset, *, name: str, first: int, start: float, end: float, step: int, epochs: int
) -> Resizing:
    """Resizing from ``first`` pixels to the training samples' own size; the other values: as in ``Resizing``.

    ``dataset``: the training samples; ``name``: of the data. Raises ConfigurationError if the samples' size cannot be
    changed, or is already smaller.
    """
    if not callable(getattr(dataset, "resize", None)):
        raise ConfigurationError.at(
            "trainer.resize_from",
            first,
            f": the samples of data={name} have no size that could be changed. Set it to "
            "null, or give the data set image_size and resize(side).",
        )
    last: int = dataset.image_size  # type: ignore[attr-defined]
    if first > last:
        raise ConfigurationError.at(
            "trainer.resize_from",
            first,
            f" is more than the {last} pixels of training images. Lower it, or set it to null.",
        )
    return Resizing(first, last, start, end, step, epochs)
