"""Charts of the objective against each swept key, with a line for each combination of the others."""

import math
from dataclasses import replace

from manyheads.runner.report.chart_spec import Axis, Chart, axis_of
from manyheads.runner.report.comparison import Comparison
from manyheads.runner.report.keys import as_numbers, is_wide, titles
from manyheads.runner.report.purpose import is_layout
from manyheads.runner.report.rows import ReportRow
from manyheads.runner.report.series import ALONE, Line, Series

MOST_TICKS, MOST_LINES = 9, 100


def effects(comparison: Comparison, series: Series) -> list[Chart]:
    """A chart for each swept key that is not a backend or layout, and has several values among completed rows."""
    rows = [row for row in comparison.completed if math.isfinite(row.measures.objective or math.nan)]
    keys = [key for key in comparison.swept if not is_layout(key) and len({row.values[key] for row in rows}) > 1]
    names = titles(comparison.swept)
    return [_effect(comparison, series, rows, key, names[key]) for key in keys]


def _effect(comparison: Comparison, series: Series, rows: list[ReportRow], key: str, name: str) -> Chart:
    axis, places = _axis(rows, key)
    lines: dict[tuple[str, ...], list[ReportRow]] = {}
    for row in sorted(rows, key=lambda row: places[row.values[key]]):
        lines.setdefault(tuple(value for other, value in row.values.items() if other != key), []).append(row)
    if len(lines) > MOST_LINES:  # as of a random search: nobody could tell them apart
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
    numbers = as_numbers(texts)
    if numbers is None:
        return Axis(key, "category", list(map(float, range(len(texts)))), texts), {
            text: float(place) for place, text in enumerate(texts)
        }
    places = dict(zip(texts, numbers, strict=True))
    few = sorted(texts, key=places.__getitem__) if len(texts) <= MOST_TICKS else []
    return Axis(key, "log" if is_wide(numbers) else "linear", [places[text] for text in few], few), places
