"""The estimate as a picture: the peak memory of the largest rank, stacked by kind, and its communication."""

from functools import partial
from typing import TYPE_CHECKING, Any

from manyheads.runner.answers.estimate.print_estimate import name_of, readable
from manyheads.runner.answers.measure.findings import DeviceMemory, Estimate
from manyheads.runner.charts.colours import short
from manyheads.runner.charts.picture_file import render

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

HELD = {  # also distinct for colour-blind readers
    "parameters": "#0072b2",
    "gradients": "#56b4e9",
    "optimizer": "#009e73",
    "masters": "#117733",
    "buffers": "#666666",
    "activations": "#e69f00",
    "working": "#f3d9a4",
}
NAMES = {"optimizer": "optimizer state", "masters": "fp32 copies", "working": "workspace"}
SENT = ("#cc79a7", "#882255", "#d55e00", "#332288", "#88ccee", "#aa4499")
GB = 10**9


def draw(estimates: list[Estimate], device: DeviceMemory | None, *, form: str) -> bytes | None:
    """The picture as ``form``, "png" or "svg"; None if nothing could be estimated."""
    rehearsed = [estimate for estimate in estimates if estimate.holds]
    if not rehearsed:
        return None
    return render(partial(_fill, rehearsed, device), size=(12, 2.3 + 0.42 * len(rehearsed)), form=form)


def _fill(rehearsed: list[Estimate], device: DeviceMemory | None, figure: "Figure") -> None:
    held, sent = figure.subplots(1, 2, width_ratios=(1.2, 1))
    names = [short(name_of(estimate)) for estimate in rehearsed]
    most = max(estimate.largest.total for estimate in rehearsed)
    scale, unit = next(((size, name) for size, name in ((GB, "GB"), (10**6, "MB")) if most >= size), (1000, "kB"))
    parts = [{kind: size / scale for kind, size in estimate.largest.parts().items()} for estimate in rehearsed]
    _stack(held, names, parts, {kind: (NAMES.get(kind, kind), color) for kind, color in HELD.items()})
    held.set_title(f"{unit} that the largest rank holds at its peak")
    if device is not None:
        limit = device.memory / scale
        held.axvline(limit, color="#b00020", linewidth=1.6)
        held.set_xlim(0, 1.06 * max(limit, most / scale))
        held.set_title(f"{unit} that the largest rank holds at its peak; red: the device's {readable(device.memory)}")
    traffic = [
        {kind: each_kind.bytes / scale for kind, each_kind in (estimate.largest.traffic or {}).items()}
        for estimate in rehearsed
    ]
    kinds = dict.fromkeys(kind for sizes in traffic for kind in sizes)
    _stack(sent, names, traffic, {kind: (kind, color) for kind, color in zip(kinds, SENT, strict=False)})
    sent.set_title(f"{unit} communicated per update")
    sent.set_yticklabels([])


def _stack(axes: "Axes", names: list[str], rows: list[dict[str, float]], kinds: dict[str, tuple[str, str]]) -> None:
    """Draw a bar for each row, with its parts next to each other."""
    left = [0.0] * len(rows)
    for kind, (name, color) in kinds.items():
        widths = [row.get(kind, 0.0) for row in rows]
        if any(widths):
            marks: Any = {"left": left, "height": 0.7, "color": color, "label": name}
            axes.barh(range(len(rows)), widths, **marks)
            left = [before + width for before, width in zip(left, widths, strict=True)]
    axes.set_yticks(range(len(rows)), names)
    axes.invert_yaxis()
    axes.tick_params(axis="y", length=0)
    axes.margins(x=0.06)
    axes.set_xlim(left=0)
    if any(left):
        axes.legend(loc="upper left", bbox_to_anchor=(0, -0.18), ncols=3, fontsize=9, frameon=False, columnspacing=1.2)
