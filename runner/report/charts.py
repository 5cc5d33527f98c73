"""The page's charts as plotly's JSON: plain figures, in which each trace names the row that it belongs to."""

import math
from typing import Any

from manyheads.runner.report.columns import number
from manyheads.runner.report.comparison import Comparison
from manyheads.runner.report.palette import Look, look, rest_of, short
from manyheads.runner.report.picture import BATCH, accuracy_curve, batch, batch_dashes, throughput_lines
from manyheads.runner.report.reading import Columns
from manyheads.runner.report.rows import Row

MOST_POINTS = 200  # of a curve
MOST_NAME = 60  # of a line of throughput, letters
FONT = {"family": "system-ui, sans-serif", "size": 13, "color": "#1c2329"}


def charts(comparison: Comparison) -> list[dict[str, Any]]:
    """Those that there is something to draw in: {name, title, note, most, figure}; ``most``: rows at a time."""
    style = look(comparison)
    drawn = [chart(comparison, style) for chart in (epoch_times, accuracies, throughputs, losses, gpu_load)]
    return [chart for chart in drawn if chart["figure"]["data"]]


def epoch_times(comparison: Comparison, style: Look) -> dict[str, Any]:
    """Seconds per epoch of each row as a bar, with its spread."""
    data: list[dict[str, Any]] = []
    for index, row in enumerate(comparison.rows):
        value, low, high = row.measures.seconds, row.measures.low, row.measures.high
        if value is None or low is None or high is None:
            continue
        speed_up = f" ({row.speed_up:.2f} x)" if row.speed_up else ""
        data.append(
            {
                "type": "bar",
                "orientation": "h",
                "meta": index,
                "name": _plain(style.name[row.number]),
                "y": [_plain(style.name[row.number])],
                "x": [value],
                "text": [f"{number(value)}{speed_up}"],
                "textposition": "auto",
                "insidetextanchor": "start",
                "error_x": {"array": [high - value], "arrayminus": [value - low], "color": "#333", "thickness": 1},
                "marker": {"color": style.colour[row.number]},
                "opacity": 1 if row.state == "completed" else 0.5,
                "hovertemplate": "%{y}<br>%{x:.4g} s<extra></extra>",
            }
        )
    axis = {"autorange": "reversed", "type": "category", "ticks": "outside", "tickcolor": "#ffffff", "ticklen": 4}
    layout = {
        "barmode": "overlay",
        "bargap": 0.25,
        "yaxis": axis,
        "xaxis": {"rangemode": "tozero"},
    }
    note = "Median, with the lowest and the highest; pale: not completed."
    return _chart("epoch_times", "Seconds per epoch, and speed-up", note, 100, data, layout)


def accuracies(comparison: Comparison, style: Look) -> dict[str, Any]:
    """Accuracy against training time, a line for each row."""
    data: list[dict[str, Any]] = []
    for index, row in enumerate(comparison.rows):
        times, values = accuracy_curve(row)
        if values:
            line = {**_line(style, row, index), "mode": "lines+markers", "marker": {"size": 5}}
            data.append({**line, "x": _thin(times), "y": _thin(values)})
    layout = {"yaxis": {"ticksuffix": " %"}}
    return _chart("accuracies", "Validation accuracy against seconds of training", "", 20, data, layout)


def throughputs(comparison: Comparison, style: Look) -> dict[str, Any]:
    """Samples per second against the batch size."""
    data: list[dict[str, Any]] = []
    dashes = batch_dashes(comparison, style)
    for rows in throughput_lines(comparison).values():
        rest = rest_of(rows[0], without=(BATCH, style.hue_key))
        hue = rows[0].values.get(style.hue_key or "", "") if style.hue_key != BATCH else ""
        name = " ".join(filter(None, (hue, rest)))
        data.append(
            {
                "type": "scatter",
                "mode": "lines+markers",
                "name": _plain(short(name, MOST_NAME)) or "samples/s",
                "hoverlabel": {"namelength": -1},
                "x": [batch(row) for row in rows],
                "y": [row.measures.throughput for row in rows],
                "line": {"color": style.colour[rows[0].number], "dash": dashes[rest]},
            }
        )
    sizes = sorted({batch(row) for rows in throughput_lines(comparison).values() for row in rows})
    axis = {"type": "log", "tickvals": sizes, "ticktext": [str(size) for size in sizes]}
    layout = {"xaxis": axis, "yaxis": {"rangemode": "tozero"}}
    return _chart("throughputs", "Samples per second against global batch", "All completed jobs.", 0, data, layout)


def losses(comparison: Comparison, style: Look) -> dict[str, Any]:
    """Training losses as logged; validation losses, one an epoch, as points of the same colour."""
    data: list[dict[str, Any]] = []
    for index, row in enumerate(comparison.rows):
        run, line = row.first.run, _line(style, row, index)
        if run.steps.get("loss"):
            data.append({**line, "mode": "lines", **_points(run.steps, "step", "loss")})
        if run.epochs.get("val_loss"):
            points = _points(run.epochs, "step", "val_loss")
            marks = {"mode": "markers", "marker": {"size": 6, "color": line["line"]["color"]}, "showlegend": False}
            data.append({**line, **marks, "name": f"{line['name']}, validation", **points})
    layout = {"yaxis": {"rangemode": "tozero"}}
    return _chart(
        "losses", "Loss of each run against its steps", "Lines: training; points: validation.", 20, data, layout
    )


def gpu_load(comparison: Comparison, style: Look) -> dict[str, Any]:
    """The load of the GPUs over time, where it was sampled."""
    data: list[dict[str, Any]] = []
    for index, row in enumerate(comparison.rows):
        gpu = row.first.run.gpu
        if not {"time", "device", "utilisation_percent"} <= gpu.keys() or not gpu["time"]:
            continue
        start = min(gpu["time"])
        for device in sorted(set(gpu["device"])):
            picked = [i for i, value in enumerate(gpu["device"]) if value == device]
            line = {
                **_line(style, row, index),
                "name": f"{_plain(style.name[row.number])}, GPU {device:.0f}",
                "mode": "lines",
            }
            x, y = [gpu["time"][i] - start for i in picked], [gpu["utilisation_percent"][i] for i in picked]
            data.append({**line, "x": _thin(x), "y": _thin(y)})
    layout = {"yaxis": {"ticksuffix": " %", "range": [0, 102]}}
    return _chart("gpu_load", "GPU load against seconds", "", 8, data, layout)


def _chart(name: str, title: str, note: str, most: int, data: list[dict], layout: dict) -> dict[str, Any]:
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


def _line(style: Look, row: Row, index: int) -> dict[str, Any]:
    line = {"color": style.colour[row.number], "dash": style.dash[row.number], "width": 2}
    name = _plain(style.name[row.number])
    return {"type": "scatter", "meta": index, "name": name, "line": line, "legendgroup": str(index)}


def _points(columns: Columns, x: str, y: str) -> dict[str, list[float | None]]:
    return {"x": _thin(columns[x]), "y": _thin(columns[y])}


def _thin(values: list[float]) -> list[float | None]:
    """At most so many points, the last one among them, short enough for a page; None where not finite."""
    stride = math.ceil(len(values) / MOST_POINTS) or 1
    kept = values[::stride] if (len(values) - 1) % stride == 0 else [*values[::stride], values[-1]]
    return [float(f"{value:.6g}") if math.isfinite(value) else None for value in kept]


def _plain(text: str) -> str:
    """Text that plotly does not take for markup."""
    return text.replace("<", "‹")
