"""comparison.png: epoch times as bars, the metric against training time, throughput against batch size."""

import io
from collections.abc import Callable
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, Any

from manyheads.runner.report.metric import number
from manyheads.runner.report.comparison import Comparison
from manyheads.runner.report.metric import ShownMetric
from manyheads.runner.report.series import Bar, Line, Series, short

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MOST_BARS, MOST_CURVES = 40, 60
LINES: Any = {"solid": "-", "dash": "--", "dot": ":", "dashdot": "-."}
STYLE: Any = {
    "font.size": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlesize": 11,
    "axes.titlelocation": "left",
    "axes.edgecolor": "#8a949c",
    "text.parse_math": False,  # labels are the user's
}


def draw(comparison: Comparison) -> bytes | None:
    """A PNG, or None when no job has got through an epoch."""
    import matplotlib
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    series = Series(comparison)
    bars, curves, (rates, dashes) = series.epoch_times(), series.metrics(), series.throughputs()
    if not bars:
        return None
    panels: list[Callable[[Axes], None]] = []
    if curves:
        panels.append(lambda axes: draw_metrics(axes, curves, comparison.metric, series.colours, series.dashes))
    if rates:
        panels.append(lambda axes: draw_throughputs(axes, rates, series.colours, dashes))
    with matplotlib.rc_context(STYLE):
        height = max(2.6 * max(1, len(panels)) + 0.8, 0.34 * min(len(bars), MOST_BARS) + 1.6)
        figure = Figure(figsize=(12 if panels else 7, min(height, 14)), layout="constrained", facecolor="white")
        FigureCanvasAgg(figure)
        grid = figure.add_gridspec(max(1, len(panels)), 2 if panels else 1, width_ratios=(1.15, 1) if panels else None)
        draw_bars(figure.add_subplot(grid[:, 0]), bars)
        for index, panel in enumerate(panels):
            panel(figure.add_subplot(grid[index, 1]))
        figure.suptitle(short(f"{comparison.title}: {comparison.headline}", 110), x=0.01, ha="left", fontsize=11)
        image = io.BytesIO()
        figure.savefig(image, format="png", dpi=120)
    return image.getvalue()


def draw_bars(axes: "Axes", bars: list[Bar]) -> None:
    """Seconds per epoch, with whiskers from the lowest to the highest; the fastest where there are too many."""
    fastest = sorted(bars, key=lambda bar: bar.seconds)[:MOST_BARS]
    shown = sorted(fastest, key=lambda bar: bar.row)
    gaps = [1.0 if before.group == bar.group else 1.5 for before, bar in pairwise(shown)]
    places = list(accumulate([0.0, *gaps]))
    longest = max(bar.high for bar in shown)
    for place, bar in zip(places, shown, strict=True):
        whiskers = [[bar.seconds - bar.low], [bar.high - bar.seconds]] if bar.high > bar.low else None
        marks: Any = {"color": bar.colour, "hatch": None if bar.is_complete else "///", "ecolor": "#333333"}
        axes.barh(place, bar.seconds, xerr=whiskers, height=0.75, capsize=2.5, **marks)
        speed_up = f"  {bar.speed_up:.2f} x" if bar.speed_up else ""
        axes.text(bar.high + 0.015 * longest, place, number(bar.seconds) + speed_up, va="center", fontsize=9)
    axes.set_yticks(places, [bar.name + ("" if bar.is_complete else " *") for bar in shown])
    axes.set_ylim(places[-1] + 0.7, -0.7)
    axes.set_xlim(0, longest * 1.22)
    axes.tick_params(axis="y", length=0)
    few = f", the fastest {len(shown)} of {len(bars)}" if len(bars) > len(shown) else ""
    axes.set_title(f"Seconds per epoch, speed-up{few}")
    if not all(bar.is_complete for bar in shown):
        axes.set_xlabel("* not completed", loc="left", fontsize=9)


def draw_metrics(
    axes: "Axes", lines: list[Line], metric: ShownMetric, colours: dict[str, str], dashes: dict[str, str]
) -> None:
    """The metric against training time, a line for each job, coloured as the bars are."""
    few = f", {MOST_CURVES} of {len(lines)} jobs" if len(lines) > MOST_CURVES else ""
    _plot(axes, lines[:MOST_CURVES], marker=".", alpha=0.9)
    unit = f" ({metric.unit})" if metric.unit else ""
    axes.set_title(f"{metric.label.capitalize()}{unit} against seconds of training{few}")
    _legend(axes, colours, dashes)


def draw_throughputs(axes: "Axes", lines: list[Line], colours: dict[str, str], dashes: dict[str, str]) -> None:
    """Samples per second against the global batch, a line for each combination of the other swept keys."""
    from matplotlib.ticker import NullFormatter, ScalarFormatter

    _plot(axes, lines, marker="o")
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_formatter(ScalarFormatter())
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.set_xticks(sorted({size for line in lines for size in line.x}))
    axes.margins(y=0.15)
    axes.set_ylim(bottom=0)
    axes.set_title("Samples per second against global batch")
    _legend(axes, colours, dashes)


def _plot(axes: "Axes", lines: list[Line], **marks: Any) -> None:
    for line in lines:
        dash = LINES[line.dash]
        axes.plot(line.x, line.y, color=line.colour, linestyle=dash, markersize=5, linewidth=1.4, **marks)
    axes.grid(color="#e3e7ea")


def _legend(axes: "Axes", colours: dict[str, str], dashes: dict[str, str]) -> None:
    """Beside the lines, where it covers none."""
    from matplotlib.lines import Line2D

    handles = []
    if 1 < len(colours) <= 12:
        handles = [Line2D([], [], color=colour, linewidth=3, label=short(name)) for name, colour in colours.items()]
    if 1 < len(dashes) <= len(LINES):
        handles += [Line2D([], [], color="#333", linestyle=LINES[d], label=short(name)) for name, d in dashes.items()]
    if handles:
        axes.legend(handles=handles, loc="upper left", bbox_to_anchor=(1.0, 1.0), fontsize=9, frameon=False)
