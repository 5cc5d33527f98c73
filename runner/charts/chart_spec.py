"""A chart as plain data, from which comparison.png and comparison.html are both drawn."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from manyheads.runner.records.keys import is_wide
from manyheads.runner.records.shown_metric import ShownMetric


@dataclass(frozen=True, slots=True)
class Bar:
    """A row's value with its range. ``row``: the row's index in the comparison; ``remark``: the speed-up."""

    row: int
    name: str
    colour: str
    value: float
    low: float
    high: float
    text: str
    remark: str
    group: int
    is_complete: bool


@dataclass(frozen=True, slots=True)
class Line:
    """A curve. ``row``: the index of its row in the comparison; None if it goes through several rows.

    ``spread``: the standard deviation of each point, if it exists; ``mark``: line, points, or both.
    """

    row: int | None
    name: str
    colour: str
    dash: str
    x: Sequence[float]
    y: Sequence[float]
    mark: str = "line"
    spread: list[float] = field(default_factory=list)


@dataclass(frozen=True)
class Axis:
    """An axis of a chart.

    ``title``: with the unit; ``scale``: linear, log or category; ``ticks``, ``labels``: None to choose them when
    drawing; ``from_zero``: it includes 0; ``top``: its fixed end; ``within``: limits that it never exceeds, such as
    those of a percentage; ``is_whole``: only whole numbers are meaningful.
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
    """The axis of a metric: percentages within 0 to 100 %, errors on a logarithmic scale if they are far apart."""
    wide = metric.direction == "min" and is_wide(value for line in lines for value in line.y)
    return Axis(title, "log" if wide else "linear", within=[0, 100] if metric.unit == "%" else [])


@dataclass(frozen=True)
class Chart:
    """A chart of lines or bars. ``most``: number of rows shown at a time, 0 for all."""

    name: str
    title: str
    note: str
    x: Axis
    y: Axis
    lines: list[Line] = field(default_factory=list)
    bars: list[Bar] = field(default_factory=list)
    most: int = 0
