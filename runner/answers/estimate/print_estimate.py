"""The estimate in a terminal: memory per rank, communication, and which figures are exact."""

from collections.abc import Sequence

from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from manyheads.runner.answers.measure.findings import DeviceMemory, Estimate
from manyheads.runner.machine.console import Console

HELD = {
    "parameters": "parameters",
    "gradients": "gradients",
    "optimizer": "optimizer",
    "masters": "fp32 copies",
    "buffers": "buffers",
    "activations": "~activations",
    "most": "~peak",
}
UNITS = ("B", "kB", "MB", "GB", "TB", "PB")
SENT = ("all-reduce", "all-gather", "reduce-scatter", "broadcast", "send", "receive", "all-to-all")


def show(estimates: list[Estimate], device: DeviceMemory | None, *, console: Console | None = None) -> None:
    """Print the tables, refusals and notes. A table that is too wide is transposed."""
    console = console or Console()
    rehearsed = [estimate for estimate in estimates if estimate.holds]
    for title, rows in (_held(rehearsed, device), _sent(rehearsed)) if rehearsed else ():
        if len(rows) > 1:
            upright, turned = _table(title, rows), _table(title, [*zip(*rows, strict=True)])
            width = Measurement.get(console, console.options.update(max_width=10_000), upright).maximum
            console.print(upright if width <= console.width else turned)
    for estimate in rehearsed:
        if told := _ranges(estimate):
            console.print(Text(f"{name_of(estimate)}: across ranks: {told}."))
        if estimate.largest.stops:
            console.print(
                Text(
                    f"{name_of(estimate)}: the model stops in {estimate.largest.stops}. "
                    "Activations, peak and communication are unknown."
                )
            )
    for estimate in estimates:
        if estimate.reason:
            console.print(Text(f"{estimate.label} is refused: {estimate.reason}"))
    if rehearsed:
        console.print(Text(_note(rehearsed, device)))


def name_of(estimate: Estimate) -> str:
    """The values of the swept keys, such as ``fsdp, adamw``; the strategy if no key was swept."""
    return ", ".join(override.partition("=")[2] for override in estimate.label.split()) or estimate.name


def _held(estimates: list[Estimate], device: DeviceMemory | None) -> tuple[str, list[list[str]]]:
    kinds = [kind for kind in HELD if kind not in ("masters", "buffers") or any(e.range(kind)[1] for e in estimates)]
    step = power(max(estimate.largest.total for estimate in estimates))
    rows = [["", "ranks", *(HELD[kind] for kind in kinds), *(["fits"] if device else [])]]
    for estimate in estimates:
        sizes = [getattr(estimate.largest, kind) for kind in kinds]
        cells = ["?" if size is None else digits(size / 1000**step) for size in sizes]
        rows.append([name_of(estimate), str(estimate.ranks), *cells, *([_verdict(estimate, device)] if device else [])])
    return f"{UNITS[step]} that the largest rank holds", rows


def _verdict(estimate: Estimate, device: DeviceMemory) -> str:
    if estimate.largest.total > device.memory:
        return "no"
    return "?" if estimate.largest.most is None else "yes"


def _sent(estimates: list[Estimate]) -> tuple[str, list[list[str]]]:
    """Calls and bytes by kind; empty without communication."""
    communicating = [estimate for estimate in estimates if estimate.largest.traffic]
    kinds = [kind for kind in SENT if any(kind in (estimate.largest.traffic or {}) for estimate in communicating)]
    step = power(max((estimate.largest.sent or 0 for estimate in communicating), default=0))
    rows = [["", *(f"{kind}" for kind in kinds), "sum"]] if communicating else []
    for estimate in communicating:
        traffic = estimate.largest.traffic or {}
        sent = {kind: f"{sums.calls:,}: {digits(sums.bytes / 1000**step)}" for kind, sums in traffic.items()}
        cells = [sent.get(kind, "") for kind in kinds]
        rows.append([name_of(estimate), *cells, digits((estimate.largest.sent or 0) / 1000**step)])
    return f"Calls and {UNITS[step]} of that rank's communication per update", rows


def _ranges(estimate: Estimate) -> str:
    """Ranges of the values that differ between ranks in the digits shown."""
    ranges = {kind: estimate.range(kind) for kind in HELD if getattr(estimate.largest, kind) is not None}
    return ", ".join(
        f"{HELD[kind]} {readable(low)} to {readable(high)}"
        for kind, (low, high) in ranges.items()
        if readable(low) != readable(high)
    )


def _table(title: str, rows: Sequence[Sequence[str]]) -> Table:
    table = Table(title=title, title_justify="left", title_style="bold")
    table.add_column("")
    for name in rows[0][1:]:
        table.add_column(Text(name), justify="right")
    for first, *cells in rows[1:]:
        table.add_row(Text(first), *map(Text, cells))
    return table


def _note(estimates: list[Estimate], device: DeviceMemory | None) -> str:
    text = "~ is an estimate, the rest is exact. Peak: the highest usage during an update, workspace included."
    if any(estimate.largest.traffic for estimate in estimates):
        text += " Communication counts whole tensors, however much of one each rank sends."
    if device is None:
        return f"{text} --device-memory 80GB shows what fits."
    return f"{text} A device has {readable(device.memory)} ({device.source}); CUDA uses about 0.5 GB of this."


def power(most: int) -> int:
    """The unit that fits the largest of some sizes."""
    return next((step for step in range(len(UNITS) - 1) if most < 1000 ** (step + 1)), len(UNITS) - 1)


def digits(value: float) -> str:
    """A number with three significant digits, or all digits before the point."""
    if not value:
        return "0"
    return f"{value:,.0f}" if value >= 99.95 else f"{value:.1f}" if value >= 9.995 else f"{value:.2f}"


def readable(size: int) -> str:
    """Bytes with their unit: 26.9 GB."""
    step = power(size)
    return f"{digits(size / 1000**step)} {UNITS[step]}" if step else f"{size} B"
