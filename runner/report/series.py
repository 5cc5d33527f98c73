"""Computes what comparison.png and comparison.html draw, as plain numbers, so that both only draw it."""

import math
from array import array
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import accumulate, compress

from manyheads.runner.charts.chart_spec import Bar, Line
from manyheads.runner.charts.colours import colours, dashes, short
from manyheads.runner.records.keys import grouped, short_label
from manyheads.runner.records.load_run import Columns, Run
from manyheads.runner.records.shown_metric import number
from manyheads.runner.report.comparison import Comparison
from manyheads.runner.report.rows import ReportRow

BATCH = "data.batch_size"
ALONE = "#0072b2"  # the colour of a single line
MOST_NAME = 60  # characters in the name of a line through several rows

Points = tuple[Sequence[float], Sequence[float]]  # x and y; of a run's tables, without a copy


class Series:
    """A comparison's bars and lines, in the colours of its palette."""

    def __init__(self, comparison: Comparison):
        self._comparison, self._rows = comparison, comparison.rows
        self.palette = Palette(comparison)

    def epoch_times(self) -> list[Bar]:
        """Seconds per epoch of each row that has completed one."""
        timed = [
            (index, measures.seconds, measures.low, measures.high)
            for index, measures in enumerate(row.measures for row in self._rows)
            if measures.seconds and measures.low and measures.high
        ]
        return [self._bar(*bar, unit="s", has_speed=True) for bar in timed]

    def memory(self) -> list[Bar]:
        """Peak memory of each row in MB: that of the device with the highest peak, down to that with the lowest."""
        peaks = [(index, row.measures.memory) for index, row in enumerate(self._rows) if row.measures.memory]
        return [self._bar(index, max(peak), min(peak), max(peak), unit="MB") for index, peak in peaks]

    def metrics(self, *, against_time: bool) -> list[Line]:
        """The metric on validation data against seconds of training or epochs, at each evaluation."""
        column = self._comparison.metric.column

        def points(run: Run) -> Points:
            times, values = run.epochs.get("train_seconds", []), run.epochs.get(column, [])
            x = array("d", accumulate(times)) if against_time else run.epochs.get("epoch", [])
            is_drawn = [*map(math.isfinite, values[: len(x)])]
            if len(x) == len(values) and all(is_drawn):
                return x, values
            return [*compress(x, is_drawn)], [*compress(values, is_drawn)]

        return self._lines(points, mark="both")

    def throughputs(self) -> list[Line]:
        """Samples per second against the global batch size, if that was swept.

        There is one line for each combination of the other swept keys, through the completed rows.
        """
        done = self._comparison.completed if BATCH in self._comparison.swept else []
        lines = grouped(
            (row for row in done if row.measures.throughput and _batch(row)),
            lambda row: tuple(value for name, value in row.values.items() if name != BATCH),
        )
        curves = []
        for rows in (sorted(rows, key=_batch) for rows in lines.values()):
            rates = [row.measures.throughput or math.nan for row in rows]
            curves.append(self.through(rows, BATCH, [*map(float, map(_batch, rows))], rates))
        return self.dashed(curves, [rows[0] for rows in lines.values()], BATCH)

    def through(self, rows: list[ReportRow], key: str, x: list[float], y: list[float], **more: list[float]) -> Line:
        """A line through rows that differ in one key, named by the others."""
        colour, rest = self.palette.coloured(rows[0]), self.palette.rest(rows[0], key)
        words = (colour if self.palette.key not in (None, key) else "", rest)
        name = short(" ".join(filter(None, words)), MOST_NAME)
        return Line(None, name, self.palette.colours[colour], "solid", x, y, "both", **more)

    def dashed(self, lines: list[Line], firsts: list[ReportRow], key: str) -> list[Line]:
        """Lines through rows, each with a dash or another colour for the values that its colour does not represent."""
        rests = [self.palette.rest(row, key) for row in firsts]
        if key == self.palette.key:
            colour_of = colours((rest, None) for rest in rests) if len({*rests}) > 1 else dict.fromkeys(rests, ALONE)
            return [replace(line, colour=colour_of[rest]) for line, rest in zip(lines, rests, strict=True)]
        meaning = dashes(rests)
        return [replace(line, dash=meaning[rest]) for line, rest in zip(lines, rests, strict=True)]

    def losses(self) -> list[Line]:
        """Training losses against steps, as logged."""
        return self._lines(lambda run: _points(run.steps, "step", "loss"))

    def validation_losses(self) -> list[Line]:
        """Validation losses against steps, one for each epoch."""
        return self._lines(lambda run: _points(run.epochs, "step", "val_loss"), ", validation", mark="points")

    def gpu_load(self) -> list[Line]:
        """The load of each GPU in percent against seconds, if it was sampled."""
        lines = []
        for index, row in enumerate(self._rows):
            gpu = row.first.run.gpu
            samples = list(zip(gpu.get("device", []), *_points(gpu, "time", "utilisation_percent"), strict=False))
            start = min((time for _, time, _ in samples), default=0.0)
            for device in sorted({device for device, *_ in samples}):
                points_of_device = [(time - start, load) for owner, time, load in samples if owner == device]
                points = [time for time, _ in points_of_device], [load for _, load in points_of_device]
                lines.append(self._line(index, points, f", GPU {device:.0f}", "line"))
        return lines

    def _bar(self, index: int, value: float, low: float, high: float, *, unit: str, has_speed: bool = False) -> Bar:
        row, name = self._rows[index], self.palette.names[index]
        remark = f"{row.speed_up:.2f} x" if has_speed and row.speed_up else ""
        colour, text = self.palette.of(row)[0], f"{number(value)} {unit}"
        return Bar(index, name, colour, value, low, high, text, remark, row.group, row.state == "completed")

    def _lines(self, points_of: Callable[[Run], Points], suffix: str = "", mark: str = "line") -> list[Line]:
        """A line for each run that has points: runs of a row differ only in the seed or the fold."""
        points_of_runs = [(index, points_of(job.run)) for index, row in enumerate(self._rows) for job in row.jobs]
        return [self._line(index, points, suffix, mark) for index, points in points_of_runs if points[0]]

    def _line(self, index: int, points: Points, suffix: str, mark: str) -> Line:
        return Line(index, self.palette.names[index] + suffix, *self.palette.of(self._rows[index]), *points, mark)


def _points(columns: Columns, x: str, y: str) -> Points:
    both = columns.get(x, ()), columns.get(y, ())
    count = min(map(len, both))
    return both if count == max(map(len, both)) else (both[0][:count], both[1][:count])


def _batch(row: ReportRow) -> int:
    """The global batch size of a row."""
    return row.first.run.config.get(BATCH, 0)


class Palette:
    """The colours and dashes of rows. ``colours``, ``dashes``: what they represent.

    Colours distinguish backends, or else the first swept key, by size if its values are numbers; dashes distinguish all
    other values, and repeat after four.
    """

    def __init__(self, comparison: Comparison):
        rows, swept = comparison.rows, comparison.swept
        self.key = "parallel" if "parallel" in swept else next(iter(swept), None)
        self.colours = colours((self.coloured(row), self._declared(row)) for row in rows)
        self.dashes = dashes(self.rest(row) for row in rows)
        counts = Counter(short(row.label) for row in rows)
        self.names = [
            name if counts[name := short(row.label)] == 1 else f"{short(row.label, 20)} · {row.number[-12:]}"
            for row in rows
        ]

    def coloured(self, row: ReportRow) -> str:
        """The meaning of a row's colour, such as «ddp» or «lr 0.01»."""
        if self.key is None:
            return str(row.first.run.config.get("parallel.name", ""))
        return short_label(row.values, *(key for key in row.values if key != self.key))

    def rest(self, row: ReportRow, *without: str) -> str:
        """A row's other swept values."""
        return short_label(row.values, self.key, *without)

    def of(self, row: ReportRow) -> tuple[str, str]:
        """A row's colour and dash."""
        return self.colours[self.coloured(row)], self.dashes[self.rest(row)]

    def _declared(self, row: ReportRow) -> str | None:
        """The colour declared by a row's backend, if colours represent backends."""
        return row.first.run.declared("parallel").color if self.key in ("parallel", None) else None
