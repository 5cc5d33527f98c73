"""comparison.png: epoch times as bars, accuracy against training time, throughput against batch size."""

import io
import math
from itertools import accumulate
from typing import TYPE_CHECKING, Any

from manyheads.runner.report.columns import number
from manyheads.runner.report.comparison import Comparison
from manyheads.runner.report.palette import DASHES, Look, look, rest_of, short
from manyheads.runner.report.rows import Row

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MOST_BARS, MOST_CURVES = 40, 60
BATCH = "data.batch_size"
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

    timed = [row for row in comparison.rows if row.measures.seconds]
    if not timed:
        return None
    with matplotlib.rc_context(STYLE):
        panels = [draw_curves] if any(accuracy_curve(row)[1] for row in timed) else []
        panels += [draw_batches] if throughput_lines(comparison) else []
        height = max(2.6 * max(1, len(panels)) + 0.8, 0.34 * min(len(timed), MOST_BARS) + 1.6)
        figure = Figure(figsize=(12 if panels else 7, min(height, 14)), layout="constrained", facecolor="white")
        FigureCanvasAgg(figure)
        bars, rest = _layout(figure, len(panels))
        style = look(comparison)
        draw_bars(bars, style, timed)
        for axes, panel in zip(rest, panels, strict=True):
            panel(axes, comparison, style)
        figure.suptitle(short(f"{comparison.title}: {comparison.headline}", 110), x=0.01, ha="left", fontsize=11)
        image = io.BytesIO()
        figure.savefig(image, format="png", dpi=120)
    return image.getvalue()


def _layout(figure: "Figure", panels: int) -> tuple["Axes", list["Axes"]]:
    if not panels:
        return figure.subplots(), []
    grid = figure.add_gridspec(panels, 2, width_ratios=(1.15, 1))
    return figure.add_subplot(grid[:, 0]), [figure.add_subplot(grid[index, 1]) for index in range(panels)]


def draw_bars(axes: "Axes", style: Look, rows: list[Row]) -> None:
    """Seconds per epoch, with whiskers from the lowest to the highest; the fastest where there are too many."""
    shown = sorted(rows, key=_seconds)[:MOST_BARS]
    shown = [row for row in rows if row in shown]
    places = list(accumulate((_gap(before, row) for before, row in zip([None, *shown], shown, strict=False))))
    longest = max(row.measures.high or 0 for row in shown)
    for place, row in zip(places, shown, strict=True):
        value, low, high = _seconds(row), row.measures.low or 0, row.measures.high or 0
        whiskers = [[value - low], [high - value]] if high > low else None
        hatch = None if row.state == "completed" else "///"
        colour = style.colour[row.number]
        axes.barh(place, value, xerr=whiskers, color=colour, hatch=hatch, height=0.75, capsize=2.5, ecolor="#333333")
        speed_up = f"  {row.speed_up:.2f} x" if row.speed_up else ""
        axes.text(high + 0.015 * longest, place, f"{number(value)}{speed_up}", va="center", fontsize=9)
    axes.set_yticks(places, [style.name[row.number] + ("" if row.state == "completed" else " *") for row in shown])
    axes.set_ylim(places[-1] + 0.7, -0.7)
    axes.set_xlim(0, longest * 1.22)
    axes.tick_params(axis="y", length=0)
    few = f", the fastest {len(shown)} of {len(rows)}" if len(rows) > len(shown) else ""
    axes.set_title(f"Seconds per epoch, speed-up{few}")
    if any(row.state != "completed" for row in shown):
        axes.set_xlabel("* not completed", loc="left", fontsize=9)


def draw_curves(axes: "Axes", comparison: Comparison, style: Look) -> None:
    """Accuracy against training time, a line for each job, coloured as the bars are."""
    rows = [row for row in comparison.rows if accuracy_curve(row)[1]]
    for row in rows[:MOST_CURVES]:
        times, accuracies = accuracy_curve(row)
        line: dict[str, Any] = {"color": style.colour[row.number], "linestyle": LINES[style.dash[row.number]]}
        axes.plot(times, accuracies, marker=".", markersize=5, linewidth=1.4, alpha=0.9, **line)
    few = f", {MOST_CURVES} of {len(rows)} jobs" if len(rows) > MOST_CURVES else ""
    axes.set_title(f"Accuracy (%) against seconds of training{few}")
    axes.grid(color="#e3e7ea")
    _legend(axes, style.hues, style.dashes)


def draw_batches(axes: "Axes", comparison: Comparison, style: Look) -> None:
    """Samples per second against the global batch, a line for each combination of the other swept keys."""
    from matplotlib.ticker import NullFormatter, ScalarFormatter

    dashes = batch_dashes(comparison, style)
    for rows in throughput_lines(comparison).values():
        sizes, rates = [batch(row) for row in rows], [row.measures.throughput or math.nan for row in rows]
        dash = dashes[rest_of(rows[0], without=(BATCH, style.hue_key))]
        line: dict[str, Any] = {"color": style.colour[rows[0].number], "linestyle": LINES[dash]}
        axes.plot(sizes, rates, marker="o", markersize=5, linewidth=1.4, **line)
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_formatter(ScalarFormatter())
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.set_xticks(sorted({batch(row) for line in throughput_lines(comparison).values() for row in line}))
    axes.margins(y=0.15)
    axes.set_ylim(bottom=0)
    axes.set_title("Samples per second against global batch")
    axes.grid(color="#e3e7ea")
    _legend(axes, style.hues, dashes)


def accuracy_curve(row: Row) -> tuple[list[float], list[float]]:
    """Seconds of training so far, and validation accuracy then, for each epoch that was evaluated."""
    epochs = row.first.run.epochs
    times = accumulate(epochs.get("train_seconds", []))
    points = [(t, a) for t, a in zip(times, epochs.get("val_acc1", []), strict=False) if math.isfinite(a)]
    return [t for t, _ in points], [a for _, a in points]


def throughput_lines(comparison: Comparison) -> dict[tuple[str, ...], list[Row]]:
    """Completed rows by all swept values but the batch, where that was swept; sorted by it."""
    if BATCH not in comparison.swept:
        return {}
    lines: dict[tuple[str, ...], list[Row]] = {}
    for row in comparison.completed:
        if row.measures.throughput and batch(row):
            key = tuple(value for name, value in row.values.items() if name != BATCH)
            lines.setdefault(key, []).append(row)
    return {key: sorted(rows, key=batch) for key, rows in lines.items()}


def batch_dashes(comparison: Comparison, style: Look) -> dict[str, str]:
    """Dashes of the throughput's lines, by what was swept besides the batch and what the colours tell apart."""
    lines = throughput_lines(comparison).values()
    rests = dict.fromkeys(rest_of(rows[0], without=(BATCH, style.hue_key)) for rows in lines)
    return {rest: DASHES[index % len(DASHES)] for index, rest in enumerate(rests)}


def batch(row: Row) -> int:
    """The row's global batch size."""
    return row.first.run.config.get(BATCH, 0)


def _legend(axes: "Axes", hues: dict[str, str], dashes: dict[str, str]) -> None:
    """Beside the lines, where it covers none."""
    from matplotlib.lines import Line2D

    handles = []
    if 1 < len(hues) <= 12:
        handles = [Line2D([], [], color=colour, linewidth=3, label=short(name)) for name, colour in hues.items()]
    if 1 < len(dashes) <= len(LINES):
        handles += [Line2D([], [], color="#333", linestyle=LINES[d], label=short(name)) for name, d in dashes.items()]
    if handles:
        axes.legend(handles=handles, loc="upper left", bbox_to_anchor=(1.0, 1.0), fontsize=9, frameon=False)


def _gap(before: Row | None, row: Row) -> float:
    if before is None:
        return 0.0
    return 1.0 if before.group == row.group else 1.5


def _seconds(row: Row) -> float:
    return row.measures.seconds or math.inf
