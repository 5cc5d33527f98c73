"""A chart as plain data, from which comparison.png and comparison.html are both drawn."""

from dataclasses import dataclass, field

from manyheads.runner.report.metric import ShownMetric
from manyheads.runner.report.numbers import is_wide
from manyheads.runner.report.series import Bar, Line


@dataclass(frozen=True)
class Axis:
    """What a chart's values are measured by.

    ``title``: with its unit. ``scale``: linear, log or category. ``ticks``, ``labels``: where they are not for the
    drawer to choose. ``from_zero``: 0 is on it. ``top``: where it ends, whatever values there are. ``within``: what it
    never reaches beyond, as a share in percent does not. ``is_whole``: only whole numbers mean something.
    """

    title: str
    scale: str = "linear"
    ticks: list[float] = field(default_factory=list)
    labels: list[str] = field(default_factory=list)
    from_zero: bool = False
    top: float | None = None
    within: list[float] = field(default_factory=list)
    is_whole: bool = False


def axis_of(metric: ShownMetric, title: str, lines: list[Line]) -> Axis:
    """A metric's values: shares from 0 to 100 %, errors on a logarithmic scale where they are far apart."""
    wide = metric.direction == "min" and is_wide(value for line in lines for value in line.y)
    return Axis(title, "log" if wide else "linear", within=[0, 100] if metric.unit == "%" else [])


@dataclass(frozen=True)
class Chart:
    """Lines or bars. ``most``: rows at a time, 0 for any number of them."""

    name: str
    title: str
    note: str
    x: Axis
    y: Axis
    lines: list[Line] = field(default_factory=list)
    bars: list[Bar] = field(default_factory=list)
    most: int = 0
