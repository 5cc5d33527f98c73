"""The charts of a comparison, in the order in which they are shown."""

import math
import statistics
from array import array
from collections.abc import Sequence
from dataclasses import replace

from manyheads.runner.charts.chart_spec import Axis, Chart, axis_of
from manyheads.runner.records.keys import as_numbers, grouped, is_wide, titles
from manyheads.runner.report.comparison import Comparison
from manyheads.runner.report.purpose import is_layout
from manyheads.runner.report.rows import ReportRow
from manyheads.runner.report.series import ALONE, Line, Series

MOST_POINTS, FEWEST_POINTS = 200, 20  # of a curve
ALL_POINTS = 60_000  # of a chart, as far as FEWEST_POINTS allows
MOST_ROWS = 40  # at a time
DIVERGED = 3  # times the median of the runs' first losses; higher values would flatten all other curves
ALIKE = 1.05  # ratio of the largest to the smallest memory up to which a chart would show nothing
MOST_TICKS, MOST_LINES = 9, 100


def charts(comparison: Comparison) -> list[Chart]:
    """The charts that have content. Speed comes first if it is compared, else the objective."""
    series = Series(comparison)
    speed = [_epoch_times(series, comparison), _memory(series, races=comparison.races), _throughputs(series)]
    quality = [*effects(comparison, series), _metrics(series, comparison), _losses(series)]
    raced = [*speed[:2], quality[-2], *speed[2:], *quality[:-2], quality[-1]]
    drawn = raced if comparison.races else [*quality, *speed]
    return [chart for chart in (*drawn, _gpu_load(series)) if chart.lines or chart.bars]


def _epoch_times(series: Series, comparison: Comparison) -> Chart:
    title = "Seconds per epoch" + (", and speed-up" if comparison.races else "")
    bars = series.epoch_times()
    pale = " Pale: not completed." if not all(bar.is_complete for bar in bars) else ""
    note = f"Median, with a whisker from the lowest to the highest.{pale}"
    return Chart(
        "epoch_times", title, note, Axis("seconds per epoch (s)", from_zero=True), Axis(""), bars=bars, most=100
    )


def _memory(series: Series, *, races: bool) -> Chart:
    bars = series.memory()
    if bars and not races and max(bar.value for bar in bars) <= ALIKE * min(bar.value for bar in bars):
        bars = []
    title, axis = "Peak memory per device", Axis("peak memory (MB)", from_zero=True)
    note = "The device with the highest peak, with a whisker down to the lowest; on CPUs, each rank's process."
    return Chart("memory", title, note, axis, Axis(""), bars=bars, most=100)


def _metrics(series: Series, comparison: Comparison) -> Chart:
    metric, races = comparison.metric, comparison.races
    x = Axis("training time (s)", from_zero=True) if races else Axis("epoch", is_whole=True)
    title = f"Validation {metric.label} against {'seconds of training' if races else 'epochs'}"
    lines = series.metrics(against_time=races)
    y = axis_of(metric, metric.axis, lines)
    several = any(len(row.jobs) > 1 for row in comparison.rows)
    note = "A line for each run; seeds and folds of a row share its colour." if several else ""
    return Chart("metrics", title, note, x, y, _thinned(lines), most=MOST_ROWS)


def _throughputs(series: Series) -> Chart:
    lines = series.throughputs()
    sizes = sorted({size for line in lines for size in line.x})
    x = Axis("global batch (samples)", "log", sizes, [f"{size:.0f}" for size in sizes])
    title = "Samples per second against global batch"
    return Chart("throughputs", title, "All completed jobs.", x, Axis("samples/s", from_zero=True), lines)


def _losses(series: Series) -> Chart:
    training, validation = series.losses(), series.validation_losses()
    lines = _thinned([*training, *validation])
    top = _top([line.y for line in training])
    shown = [value for line in lines for value in line.y if top is None or value <= top]
    y = Axis("loss", "log" if is_wide(shown) else "linear", top=top)
    scale = " Logarithmic scale." if y.scale == "log" else ""
    beyond = f" Losses above {top:.3g} are off the chart." if top is not None else ""
    note = f"Lines: training; points: validation.{scale}{beyond}"
    return Chart(
        "losses", "Loss of each run against its steps", note, Axis("step", is_whole=True), y, lines, most=MOST_ROWS
    )


def _gpu_load(series: Series) -> Chart:
    lines, y = _thinned(series.gpu_load()), Axis("GPU load (%)", from_zero=True, top=100)
    return Chart("gpu_load", "GPU load against seconds", "", Axis("time (s)", from_zero=True), y, lines, most=8)


def _top(losses: list[Sequence[float]]) -> float | None:
    """The end of the axis if a run has diverged: a multiple of the first losses; else None."""
    first = [curve[0] for curve in losses if curve and math.isfinite(curve[0]) and curve[0] > 0]
    top = DIVERGED * statistics.median(first) if first else math.inf
    return top if any(value > top for curve in losses for value in curve if math.isfinite(value)) else None


def _thinned(lines: list[Line]) -> list[Line]:
    most = max(FEWEST_POINTS, min(MOST_POINTS, ALL_POINTS // max(1, len(lines))))
    thin = {id(line.x): _thin(line.x, most) for line in {id(line.x): line for line in lines}.values()}
    return [replace(line, x=thin[id(line.x)], y=_thin(line.y, most)) for line in lines]


def _thin(values: Sequence[float], most: int) -> Sequence[float]:
    """At most ``most`` points and the last one, rounded to six digits. Arrays take a quarter of the memory of lists."""
    stride = math.ceil(len(values) / most) or 1
    kept = values[::stride] if (len(values) - 1) % stride == 0 else [*values[::stride], values[-1]]
    return array("d", [float(f"{value:.6g}") for value in kept])


def effects(comparison: Comparison, series: Series) -> list[Chart]:
    """A chart for each swept key that is not a backend or layout, and has several values among completed rows."""
    measured = comparison.completed if comparison.alike else []
    rows = [row for row in measured if math.isfinite(row.measures.objective or math.nan)]
    keys = [key for key in comparison.swept if not is_layout(key) and len({row.values[key] for row in rows}) > 1]
    names = titles(comparison.swept)
    return [_effect(comparison, series, rows, key, names[key]) for key in keys]


def _effect(comparison: Comparison, series: Series, rows: list[ReportRow], key: str, name: str) -> Chart:
    axis, places = _axis(rows, key)
    in_order = sorted(rows, key=lambda row: places[row.values[key]])
    lines = grouped(in_order, lambda row: tuple(value for other, value in row.values.items() if other != key))
    if len(lines) > MOST_LINES:  # such as of a random search: too many to be distinguished
        spots = [(places[row.values[key]], row.measures.objective or 0.0) for row in rows]
        drawn = [Line(None, "", ALONE, "solid", [x for x, _ in spots], [y for _, y in spots], "points")]
    else:
        drawn = series.dashed(
            [_line(series, same, key, places) for same in lines.values()], [s[0] for s in lines.values()], key
        )
    if axis.scale == "category" or all(len(line.x) == 1 for line in drawn):  # a random search: all values differ
        drawn = [replace(line, mark="points") for line in drawn]
    objective, several = comparison.objective, any(row.measures.runs > 1 for row in rows)
    note = "Mean over the completed runs of each row, with their standard deviation." if several else ""
    return Chart(
        name=f"by_{key}",
        title=f"Best validation {objective.label.removeprefix('val ')} against {name}",
        note=note or "All completed jobs.",
        x=axis,
        y=axis_of(objective, f"best {objective.axis}", drawn),
        lines=drawn,
    )


def _line(series: Series, rows: list[ReportRow], key: str, places: dict[str, float]) -> Line:
    values = [row.measures.objective or 0.0 for row in rows]
    spread = [row.measures.objective_spread or 0.0 for row in rows]
    return series.through(
        rows, key, [places[row.values[key]] for row in rows], values, spread=spread if any(spread) else []
    )


def _axis(rows: list[ReportRow], key: str) -> tuple[Axis, dict[str, float]]:
    """The axis of a key's values, and the position of each: numbers by size, others side by side."""
    texts = list(dict.fromkeys(row.values[key] for row in rows))
    if (numbers := as_numbers(texts)) is None:
        return Axis(key, "category", list(map(float, range(len(texts)))), texts), {
            text: float(position) for position, text in enumerate(texts)
        }
    places = dict(zip(texts, numbers, strict=True))
    few = sorted(texts, key=places.__getitem__) if len(texts) <= MOST_TICKS else []
    return Axis(key, "log" if is_wide(numbers) else "linear", [places[text] for text in few], few), places
