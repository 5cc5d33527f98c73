"""comparison.png: the first charts of the page, without a browser."""

import math
from dataclasses import replace
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, Any

from manyheads.runner.charts.chart_spec import Axis, Bar, Chart, Line
from manyheads.runner.charts.colours import short
from manyheads.runner.charts.picture_file import render
from manyheads.runner.report.charts import charts
from manyheads.runner.report.comparison import Comparison
from manyheads.runner.report.heading import heading

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MOST_CHARTS, MOST_BARS, MOST_CURVES, MOST_NAMES = 4, 40, 60, 12
NAME_ROOM = 84  # letters of a bar's name, and of names in a line below a chart
DASHES: Any = {"solid": "-", "dash": "--", "dot": ":", "dashdot": "-."}


def pictured(drawn: list[Chart]) -> list[Chart]:
    """The part of a comparison's charts that the picture shows; none if no job has completed an epoch."""
    return [_shown(chart) for chart in drawn[:MOST_CHARTS]] if any(c.name == "epoch_times" for c in drawn) else []


def _shown(chart: Chart) -> Chart:
    """The chart with only the smallest bars and the first lines, if there are too many; its title counts them."""
    bars = sorted(sorted(chart.bars, key=lambda bar: bar.value)[:MOST_BARS], key=lambda bar: bar.row)
    lines, few = chart.lines[:MOST_CURVES], ""
    if len(bars) < len(chart.bars):
        few = f", the lowest {len(bars)} of {len(chart.bars)}"
    elif len(lines) < len(chart.lines):
        few = f", {MOST_CURVES} of {len(chart.lines)} lines"
    return replace(chart, title=f"{chart.title}{few}", bars=bars, lines=lines)


def draw(comparison: Comparison, drawn: list[Chart] | None = None) -> bytes | None:
    """Draw a PNG of ``drawn``, what ``pictured`` returns for the comparison's charts; None if there is nothing."""
    drawn = pictured(charts(comparison)) if drawn is None else drawn
    if not drawn:
        return None
    lines = [drawn[at : at + 2] for at in range(0, len(drawn), 2)]
    heights = [max(map(_height, line)) for line in lines]

    def fill(figure: "Figure") -> None:
        grid = figure.add_gridspec(len(lines), 2, height_ratios=heights)
        for index, line in enumerate(lines):
            for column, chart in enumerate(line):
                axes = figure.add_subplot(grid[index, column] if len(line) > 1 else grid[index, :])
                (draw_bars if chart.bars else draw_lines)(axes, chart)
        figure.suptitle(short(f"{heading(comparison)}: {comparison.headline}", 110), x=0.01, ha="left", fontsize=11)

    return render(fill, size=(12 if len(drawn) > 1 else 7, sum(heights) + 0.5), form="png")


def _height(chart: Chart) -> float:
    """The height of a chart in inches."""
    return max(3.4, 0.3 * len(chart.bars) + 1.1) + 0.17 * math.ceil(len(_named(chart.lines)) / 3)


def draw_bars(axes: "Axes", chart: Chart) -> None:
    """Draw bars with whiskers from the lowest to the highest value."""
    shown = chart.bars
    gaps = [1.0 if before.group == bar.group else 1.5 for before, bar in pairwise(shown)]
    places = list(accumulate([0.0, *gaps]))
    longest = max(bar.high for bar in shown)
    for position, bar in zip(places, shown, strict=True):
        _draw_bar(axes, position, bar, longest)
    axes.set_yticks(places, [short(bar.name, NAME_ROOM) + ("" if bar.is_complete else " *") for bar in shown])
    axes.set_ylim(places[-1] + 0.7, -0.7)
    axes.set_xlim(0, longest * (1.35 if any(bar.remark for bar in shown) else 1.2))
    axes.tick_params(axis="y", length=0)
    axes.set_title(chart.title)
    axes.set_xlabel(chart.x.title + ("" if all(bar.is_complete for bar in shown) else "; * not completed"))


def _draw_bar(axes: "Axes", position: float, bar: Bar, longest: float) -> None:
    whiskers = [[bar.value - bar.low], [bar.high - bar.value]] if bar.high > bar.low else None
    marks: Any = {"color": bar.colour, "hatch": None if bar.is_complete else "///", "ecolor": "#333333"}
    axes.barh(position, bar.value, xerr=whiskers, height=0.75, capsize=2.5, **marks)
    axes.text(bar.high + 0.02 * longest, position, f"{bar.text}  {bar.remark}".rstrip(), va="center", fontsize=9)


def draw_lines(axes: "Axes", chart: Chart) -> None:
    """Draw lines, with their names next to them if they are few enough to be distinguished."""
    for line in chart.lines:
        _draw_line(axes, line)
    axes.grid(color="#e3e7ea")
    _set(axes, "x", chart.x)
    _set(axes, "y", chart.y)
    _limit(axes, chart.y, [value for line in chart.lines for value in line.y if math.isfinite(value)])
    axes.set_title(chart.title)
    _legend(axes, chart.lines)


def _draw_line(axes: "Axes", line: Line) -> None:
    stroke: Any = {"linestyle": "" if line.mark == "points" else DASHES[line.dash], "color": line.colour}
    marker: Any = {"marker": "" if line.mark == "line" else "o", "markersize": 4, "linewidth": 1.4}
    if line.spread:
        axes.errorbar(line.x, line.y, yerr=line.spread, capsize=3, elinewidth=1, alpha=0.9, **stroke, **marker)
    else:  # as errorbar draws it, in a fifth of the time
        axes.plot(line.x, line.y, alpha=0.9, **stroke, **marker)


def _set(axes: "Axes", which: str, axis: Axis) -> None:
    """Set an axis's title, scale and ticks."""
    from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter

    drawn_axis = axes.xaxis if which == "x" else axes.yaxis
    drawn_axis.set_label_text(axis.title)
    if axis.scale == "log":
        axes.set(**{f"{which}scale": "log"})
        drawn_axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0), numticks=8))
        drawn_axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        drawn_axis.set_minor_formatter(NullFormatter())
    if axis.ticks:
        drawn_axis.set_ticks(axis.ticks, [short(label, NAME_ROOM) for label in axis.labels])
        drawn_axis.set_ticks([], minor=True)
    elif axis.is_whole:
        drawn_axis.set_major_locator(MaxNLocator(integer=True))
    if axis.scale == "category":
        axes.set_xlim(-0.5, len(axis.ticks) - 0.5)
    if axis.from_zero:
        axes.set(**{f"{which}lim": (0, axis.top)})


def _limit(axes: "Axes", axis: Axis, values: list[float]) -> None:
    """Set the limits of the vertical axis."""
    low, high = axes.get_ylim()
    if axis.top is not None and not axis.from_zero:
        axes.set_ylim(0.8 * min((value for value in values if value > 0), default=low), axis.top)
    elif axis.from_zero and axis.top is None:
        axes.set_ylim(0, 1.06 * max(values, default=1))
    elif axis.within:
        axes.set_ylim(max(low, axis.within[0]), min(high, axis.within[1]))


def _named(lines: list[Line]) -> list[Line]:
    """One line for each name, if they are few enough to be distinguished; else []."""
    named = {line.name if line.row is None else line.row: line for line in reversed(lines)}
    return list(reversed(named.values())) if 1 < len(named) <= MOST_NAMES else []


def _legend(axes: "Axes", lines: list[Line]) -> None:
    """Draw the legend, below the chart, where it takes none of its width."""
    from matplotlib.lines import Line2D

    if named := _named(lines):
        handles = [Line2D([], [], color=line.colour, linestyle=DASHES[line.dash], label=line.name) for line in named]
        columns = max(1, min(5, NAME_ROOM // (8 + max(len(line.name) for line in named)), len(named)))
        layout: Any = {"loc": "upper center", "bbox_to_anchor": (0.45, -0.16), "ncols": columns}
        axes.legend(handles=handles, fontsize=9, frameon=False, columnspacing=1.2, **layout)
