"""What comparison.png and comparison.html draw, once, as plain numbers: each of the two only draws it."""

import math
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import accumulate, cycle

from manyheads.runner.report.keys import titles
from manyheads.runner.report.comparison import Comparison
from manyheads.runner.report.load_run import Columns, Run
from manyheads.runner.report.rows import Row

# Colours that colour-blind readers can tell apart (Okabe and Ito), for what declares none.
OTHERS = ("#cc79a7", "#56b4e9", "#8c6d1f", "#009e73", "#e69f00", "#0072b2", "#d55e00", "#56646e")
DASHES = ("solid", "dash", "dot", "dashdot")
BATCH = "data.batch_size"
MOST_NAME = 60  # of a line of throughput, letters

Points = list[tuple[float, float]]


@dataclass(frozen=True)
class Bar:
    """Seconds per epoch of one row: median, lowest and highest. ``row``: its index in the comparison."""

    row: int
    name: str
    colour: str
    seconds: float
    low: float
    high: float
    speed_up: float | None
    group: int
    is_complete: bool


@dataclass(frozen=True)
class Line:
    """A curve. ``row``: the index of its row in the comparison; None where it goes through several rows."""

    row: int | None
    name: str
    colour: str
    dash: str
    x: list[float]
    y: list[float]


class Series:
    """A comparison's bars and lines. ``colours``, ``dashes``: what those of one row mean.

    Colours tell backends apart, or what else was swept first; dashes the rest, and recur after four.
    """

    def __init__(self, comparison: Comparison):
        self._comparison, self._rows, swept = comparison, comparison.rows, comparison.swept
        self._key = "parallel" if "parallel" in swept else next(iter(swept), None)
        self.colours = _colours((self._coloured(row), self._declared(row)) for row in self._rows)
        self.dashes = _dashes(_rest(row, self._key) for row in self._rows)
        counts = Counter(short(row.label) for row in self._rows)
        self._names = [
            name if counts[name := short(row.label)] == 1 else f"{short(row.label, 20)} · {row.number[-12:]}"
            for row in self._rows
        ]

    def epoch_times(self) -> list[Bar]:
        """A bar for each row that has got through an epoch."""
        bars = []
        for index, row in enumerate(self._rows):
            name, colour, own = self._names[index], self.colours[self._coloured(row)], row.measures
            if own.seconds and own.low and own.high:
                times = (own.seconds, own.low, own.high)
                bars.append(Bar(index, name, colour, *times, row.speed_up, row.group, row.state == "completed"))
        return bars

    def metrics(self) -> list[Line]:
        """The comparison's metric on validation data against seconds of training, at each epoch that was evaluated."""
        column = self._comparison.metric.column

        def points(run: Run) -> Points:
            times, values = accumulate(run.epochs.get("train_seconds", [])), run.epochs.get(column, [])
            return [(time, value) for time, value in zip(times, values, strict=False) if math.isfinite(value)]

        return self._lines(points)

    def throughputs(self) -> tuple[list[Line], dict[str, str]]:
        """Samples per second against the global batch, where that was swept, and what the lines' dashes mean.

        A line for each combination of the other swept keys, through the rows that completed.
        """
        lines: dict[tuple[str, ...], list[Row]] = {}
        for row in self._comparison.completed if BATCH in self._comparison.swept else ():
            if row.measures.throughput and _batch(row):
                key = tuple(value for name, value in row.values.items() if name != BATCH)
                lines.setdefault(key, []).append(row)
        dashes = _dashes(_rest(rows[0], BATCH, self._key) for rows in lines.values())
        found = []
        for rows in (sorted(rows, key=_batch) for rows in lines.values()):
            coloured, rest = self._coloured(rows[0]), _rest(rows[0], BATCH, self._key)
            words = (coloured if self._key not in (None, BATCH) else "", rest)
            name = short(" ".join(filter(None, words)), MOST_NAME) or "samples/s"
            rates = [row.measures.throughput or math.nan for row in rows]
            found.append(Line(None, name, self.colours[coloured], dashes[rest], [*map(_batch, rows)], rates))
        return found, dashes

    def losses(self) -> list[Line]:
        """Training losses against steps, as logged."""
        return self._lines(lambda run: _points(run.steps, "step", "loss"))

    def validation_losses(self) -> list[Line]:
        """Validation losses against steps, one for each epoch."""
        return self._lines(lambda run: _points(run.epochs, "step", "val_loss"), ", validation")

    def gpu_load(self) -> list[Line]:
        """The load of each GPU in percent against seconds, where it was sampled."""
        lines = []
        for index, row in enumerate(self._rows):
            gpu = row.first.run.gpu
            samples = list(zip(gpu.get("device", []), _points(gpu, "time", "utilisation_percent"), strict=False))
            start = min((time for _, (time, _) in samples), default=0.0)
            for device in sorted({device for device, _ in samples}):
                points = [(time - start, load) for own, (time, load) in samples if own == device]
                lines.append(self._line(index, points, f", GPU {device:.0f}"))
        return lines

    def _lines(self, points_of: Callable[[Run], Points], suffix: str = "") -> list[Line]:
        """A line for each row whose first run has points."""
        found = [points_of(row.first.run) for row in self._rows]
        return [self._line(index, points, suffix) for index, points in enumerate(found) if points]

    def _line(self, index: int, points: Points, suffix: str) -> Line:
        row, name = self._rows[index], self._names[index] + suffix
        colour, dash = self.colours[self._coloured(row)], self.dashes[_rest(row, self._key)]
        return Line(index, name, colour, dash, [x for x, _ in points], [y for _, y in points])

    def _coloured(self, row: Row) -> str:
        """What its colour stands for."""
        return row.values.get(self._key, "") if self._key else str(row.first.run.config.get("parallel.name", ""))

    def _declared(self, row: Row) -> str | None:
        """The colour of its backend, where colours stand for backends."""
        return row.first.run.declared("parallel").color if self._key in ("parallel", None) else None


def short(text: str, most: int = 28) -> str:
    """The text, cut at its end where it is longer than ``most``."""
    return text if len(text) <= most else f"{text[: most - 1]}…"


def _rest(row: Row, *without: str | None) -> str:
    """A row's other swept values, with the key's name where there is one only."""
    names = titles(list(row.values))
    rest = {names[name]: value for name, value in row.values.items() if name not in without}
    return " ".join(rest.values()) if len(rest) > 1 else "".join(f"{name} {value}" for name, value in rest.items())


def _colours(values: Iterable[tuple[str, str | None]]) -> dict[str, str]:
    """A colour for each value: the one that goes with it, or one of the others."""
    found: dict[str, str | None] = {}
    for value, colour in values:
        found[value] = found.get(value) or colour
    others = cycle(OTHERS)
    return {value: colour or next(others) for value, colour in found.items()}


def _dashes(values: Iterable[str]) -> dict[str, str]:
    return dict(zip(dict.fromkeys(values), cycle(DASHES), strict=False))


def _points(columns: Columns, x: str, y: str) -> Points:
    return list(zip(columns.get(x, []), columns.get(y, []), strict=False))


def _batch(row: Row) -> int:
    """The global one."""
    return row.first.run.config.get(BATCH, 0)
