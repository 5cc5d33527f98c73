"""A metric: a function of statistics that are added up over batches and ranks, and only then divided."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from torch import Tensor

Direction = Literal["max", "min"]


class Metric:
    """A named number, and which way is better. Tables call it ``train_<name>`` and ``val_<name>``.

    ``label``: its name in words, ``short``: in few letters, for the live line; ``unit``: "%" or none. ``shapes``: of
    each statistic that it needs, by name; () for a single number.
    """

    direction: Direction = "max"
    shapes: Mapping[str, tuple[int, ...]] = {}

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

        Besides them there is "loss", the sum of the run's loss, and "counted", what it is averaged over.
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


class Share(Metric):
    """One statistic in percent of another, such as the samples whose class was found."""

    def __init__(self, name: str, part: str, whole: str, **names: str):
        super().__init__(name, unit="%", **names)
        self.part, self.whole = part, whole
        self.shapes = {part: (), whole: ()}

    def value(self, sums: Mapping[str, "Tensor"]) -> float | None:
        whole = float(sums[self.whole])
        return 100 * float(sums[self.part]) / whole if whole else None
