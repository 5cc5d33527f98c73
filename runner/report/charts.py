"""The page's charts as plotly's JSON: plain figures, in which each trace names the row that it belongs to."""

import math
from typing import Any

from manyheads.runner.report.metric import number
from manyheads.runner.report.comparison import Comparison
from manyheads.runner.report.metric import ShownMetric
from manyheads.runner.report.series import Bar, Line, Series

MOST_POINTS = 200  # of a curve
FONT = {"family": "system-ui, sans-serif", "size": 13, "color": "#1c2329"}
WHISKERS = {"color": "#333", "thickness": 1}


def charts(comparison: Comparison) -> list[dict[str, Any]]:
    """Those that there is something to draw in: {name, title, note, most, figure}; ``most``: rows at a time."""
    series = Series(comparison)
    drawn = [
        _epoch_times(series.epoch_times()),
        _metrics(series.metrics(), comparison.metric),
        _throughputs(series.throughputs()[0]),
        _losses(series.losses(), series.validation_losses()),
        _gpu_load(series.gpu_load()),
    ]
    return [chart for chart in drawn if chart["figure"]["data"]]


def _epoch_times(bars: list[Bar]) -> dict[str, Any]:
    data = [
        {
            "type": "bar",
            "orientation": "h",
            "meta": bar.row,
            "name": _plain(bar.name),
            "y": [_plain(bar.name)],
            "x": [bar.seconds],
            "text": [number(bar.seconds) + (f" ({bar.speed_up:.2f} x)" if bar.speed_up else "")],
            "textposition": "auto",
            "insidetextanchor": "start",
            "error_x": {"array": [bar.high - bar.seconds], "arrayminus": [bar.seconds - bar.low], **WHISKERS},
            "marker": {"color": bar.colour},
            "opacity": 1 if bar.is_complete else 0.5,
            "hovertemplate": "%{y}<br>%{x:.4g} s<extra></extra>",
        }
        for bar in bars
    ]
    title, note = "Seconds per epoch, and speed-up", "Median, with the lowest and the highest; pale: not completed."
    axis = {"autorange": "reversed", "type": "category", "ticks": "outside", "tickcolor": "#ffffff", "ticklen": 4}
    layout = {"barmode": "overlay", "bargap": 0.25, "yaxis": axis, "xaxis": {"rangemode": "tozero"}}
    return _chart("epoch_times", title, data, note=note, most=100, **layout)


def _metrics(lines: list[Line], metric: ShownMetric) -> dict[str, Any]:
    data = [_trace(line, mode="lines+markers", marker={"size": 5}) for line in lines]
    title = f"Validation {metric.label} against seconds of training"
    return _chart("metrics", title, data, most=20, yaxis={"ticksuffix": f" {metric.unit}".rstrip()})


def _throughputs(lines: list[Line]) -> dict[str, Any]:
    sizes = sorted({size for line in lines for size in line.x})
    data = [_trace(line, mode="lines+markers", hoverlabel={"namelength": -1}) for line in lines]
    title, note = "Samples per second against global batch", "All completed jobs."
    axis = {"type": "log", "tickvals": sizes, "ticktext": [str(size) for size in sizes]}
    return _chart("throughputs", title, data, note=note, xaxis=axis, yaxis={"rangemode": "tozero"})


def _losses(training: list[Line], validation: list[Line]) -> dict[str, Any]:
    data = [_trace(line, mode="lines") for line in training]
    for line in validation:
        data.append(_trace(line, mode="markers", marker={"size": 6, "color": line.colour}, showlegend=False))
    title, note = "Loss of each run against its steps", "Lines: training; points: validation."
    return _chart("losses", title, data, note=note, most=20, yaxis={"rangemode": "tozero"})


def _gpu_load(lines: list[Line]) -> dict[str, Any]:
    data = [_trace(line, mode="lines") for line in lines]
    axis = {"ticksuffix": " %", "range": [0, 102]}
    return _chart("gpu_load", "GPU load against seconds", data, most=8, yaxis=axis)


def _chart(name: str, title: str, data: list[dict], *, note: str = "", most: int = 0, **layout: Any) -> dict[str, Any]:
    common = {
        "font": FONT,
        "margin": {"l": 48, "r": 16, "t": 8, "b": 32},
        "legend": {"orientation": "h", "y": -0.12, "yanchor": "top"},
        "hovermode": "closest",
        "paper_bgcolor": "#ffffff",
        "plot_bgcolor": "#ffffff",
    }
    grid = {"gridcolor": "#e3e7ea", "zerolinecolor": "#c5ccd1", "automargin": True}
    axes = {axis: {**grid, **layout.get(axis, {})} for axis in ("xaxis", "yaxis")}
    figure = {"data": data, "layout": {**common, **layout, **axes}}
    return {"name": name, "title": title, "note": note, "most": most, "figure": figure}


def _trace(line: Line, **marks: Any) -> dict[str, Any]:
    own = {} if line.row is None else {"meta": line.row, "legendgroup": str(line.row)}
    stroke = {"color": line.colour, "dash": line.dash, "width": 2}
    points = {"x": _thin(line.x), "y": _thin(line.y)}
    return {"type": "scatter", "name": _plain(line.name), "line": stroke, **own, **marks, **points}


def _thin(values: list[float]) -> list[float | None]:
    """At most MOST_POINTS points and the last one; None where not finite."""
    stride = math.ceil(len(values) / MOST_POINTS) or 1
    kept = values[::stride] if (len(values) - 1) % stride == 0 else [*values[::stride], values[-1]]
    return [float(f"{value:.6g}") if math.isfinite(value) else None for value in kept]


def _plain(text: str) -> str:
    """Text that plotly does not take for markup."""
    return text.replace("<", "‹")
