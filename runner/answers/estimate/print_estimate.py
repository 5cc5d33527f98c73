"""The estimate in a terminal: memory per rank, communication, and which figures are exact."""

from collections.abc import Sequence

from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from manyheads.runner.answers.measure.findings import DeviceMemory, Estimate, Traffic
from manyheads.runner.answers.measure.sizes import UNITS, digits, power, readable
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
SENT = ("all-reduce", "all-gather", "reduce-scatter", "broadcast", "send", "receive", "all-to-all")


def show(found: list[Estimate], device: DeviceMemory | None, *, console: Console | None = None) -> None:
    """Print the tables, refusals and notes. A table that is too wide is transposed."""
    console = console or Console()
    known = [each for each in found if each.holds]
    for title, rows in (_held(known, device), _sent(known)) if known else ():
        if len(rows) > 1:
            upright, turned = _table(title, rows), _table(title, [*zip(*rows, strict=True)])
            console.print(upright if _fits(upright, console) else turned)
    for each in known:
        if told := _ranges(each):
            console.print(Text(f"{name_of(each)}: across ranks: {told}."))
        if each.largest.stops:
            console.print(
                Text(
                    f"{name_of(each)}: the model stops in {each.largest.stops}. "
                    "Activations, peak and communication are unknown."
                )
            )
    for each in found:
        if each.reason:
            console.print(Text(f"{each.label} is refused: {each.reason}"))
    if known:
        console.print(Text(_note(known, device)))


def name_of(found: Estimate) -> str:
    """The values of the swept keys, such as ``fsdp, adamw``; the strategy if no key was swept."""
    return ", ".join(each.partition("=")[2] for each in found.label.split()) or found.name


def _held(found: list[Estimate], device: DeviceMemory | None) -> tuple[str, list[list[str]]]:
    kinds = [kind for kind in HELD if kind not in ("masters", "buffers") or any(e.range(kind)[1] for e in found)]
    step = power(max(each.largest.total for each in found))
    rows = [["", "ranks", *(HELD[kind] for kind in kinds), *(["fits"] if device else [])]]
    for each in found:
        sizes = [getattr(each.largest, kind) for kind in kinds]
        cells = ["?" if size is None else digits(size / 1000**step) for size in sizes]
        rows.append([name_of(each), str(each.ranks), *cells, *([_verdict(each, device)] if device else [])])
    return f"{UNITS[step]} that the largest rank holds", rows


def _verdict(found: Estimate, device: DeviceMemory) -> str:
    if found.largest.total > device.memory:
        return "no"
    return "?" if found.largest.most is None else "yes"


def _sent(found: list[Estimate]) -> tuple[str, list[list[str]]]:
    """Calls and bytes by kind; empty without communication."""
    known = [each for each in found if each.largest.traffic]
    kinds = [kind for kind in SENT if any(kind in (each.largest.traffic or {}) for each in known)]
    step = power(max((each.largest.sent or 0 for each in known), default=0))
    rows = [["", *(f"{kind}" for kind in kinds), "sum"]] if known else []
    for each in known:
        own = each.largest.traffic or {}
        cells = [_traffic(own[kind], step) if kind in own else "" for kind in kinds]
        rows.append([name_of(each), *cells, digits((each.largest.sent or 0) / 1000**step)])
    return f"Calls and {UNITS[step]} of that rank's communication per update", rows


def _traffic(found: Traffic, step: int) -> str:
    return f"{found.calls:,}: {digits(found.bytes / 1000**step)}"


def _ranges(found: Estimate) -> str:
    """Ranges of the values that differ between ranks in the digits shown."""
    ranges = {kind: found.range(kind) for kind in HELD if getattr(found.largest, kind) is not None}
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


def _fits(table: Table, console: Console) -> bool:
    return Measurement.get(console, console.options.update(max_width=10_000), table).maximum <= console.width


def _note(found: list[Estimate], device: DeviceMemory | None) -> str:
    text = "~ is an estimate, the rest is exact. Peak: the highest usage during an update, workspace included."
    if any(each.largest.traffic for each in found):
        text += " Communication counts whole tensors, however much of one each rank sends."
    if device is None:
        return f"{text} --device-memory 80GB shows what fits."
    return f"{text} A device has {readable(device.memory)} ({device.source}); CUDA uses about 0.5 GB of this."
