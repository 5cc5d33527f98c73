"""A metric: a function of statistics that are added up over batches and ranks, and only then divided."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    import numpy as np
    from torch import Tensor

Direction = Literal["max", "min"]


class Metric:
    """A named number, and which way is better. Tables call it ``train_<name>`` and ``val_<name>``.

    ``label``: its name in words, ``short``: in few letters, for the live line; ``unit``: "%" or none. ``shapes``: of
    each statistic that it needs, by name; () for a single number.
    """

    direction: Direction = "max"
    shapes: Mapping[str, tuple[int, ...]] = {}
    is_collected = False

    def __init__(self, name: str, *, label: str = "", short: str = "", unit: str = ""):
        self.name, self.label, self.unit = name, label or name, unit
        self.short = short or self.label

    def statistics(self, outputs: Any, batch: Any) -> dict[str, "Tensor"]:
        """Sums over one batch, by the names and of the shapes in ``shapes``; computed on the device, without gradients.

        ``outputs``: what the model returned; ``batch``: what the data set's collation gave.
        """
        raise NotImplementedError

    def value(self, sums: Mapping[str, "Tensor"]) -> float | None:
        """The metric of these statistics, which are float64 on the CPU; None where nothing was measured.

        Besides them there are the numbers "loss", the sum of the run's loss, and "counted", what it is averaged over.
        """
        raise NotImplementedError

    def text(self, value: float) -> str:
        """The value as the terminal shows it."""
        return f"{value:.2f}%" if self.unit == "%" else f"{value:.4g}"

    def live(self, value: float) -> str:
        """Name and value in few letters."""
        return f"{self.short} {value:.1f}%" if self.unit == "%" else f"{self.short} {value:.3g}"

    def describe(self) -> dict[str, str]:
        """What result.json says of it, so that a report can name and order runs by it."""
        return {"direction": self.direction, "label": self.label, "unit": self.unit}


class Collected(Metric):
    """A metric of an evaluation that no sums can tell, such as the area under a curve: it needs each sample's scores.

    They are kept by the ids of the samples in each rank's memory, 4 bytes for each class, and brought together a few
    classes at a time: ``at_most`` megabytes on each rank, beyond which the run ends and says so.
    """

    is_collected = True

    def __init__(self, name: str, *, at_most: float = 1024, **names: str):
        super().__init__(name, **names)
        self.at_most = at_most

    def of_class(self, scores: "np.ndarray", is_it: "np.ndarray") -> float | None:
        """Of one class: its score of each sample, and which samples are of it, (N,) bool; None where it has no value.

        Samples come in the order of their ids, whatever rank has seen them.
        """
        raise NotImplementedError

    def value(self, sums: Mapping[str, "Tensor"]) -> float | None:
        return None  # while training, where nothing is kept

    def over_classes(self, values: list[float | None]) -> float | None:
        """From ``of_class`` of each class to the metric: the mean over those that have a value."""
        found = [value for value in values if value is not None]
        return sum(found) / len(found) if found else None


class Share(Metric):
    """One statistic in percent of another, such as the samples whose class was found."""

    def __init__(self, name: str, part: str, whole: str, **names: str):
        super().__init__(name, unit="%", **names)
        self.part, self.whole = part, whole
        self.shapes = {part: (), whole: ()}

    def value(self, sums: Mapping[str, "Tensor"]) -> float | None:
        whole = float(sums[self.whole])
        return 100 * float(sums[self.part]) / whole if whole else None
