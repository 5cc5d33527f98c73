"""The rows as one table of at most 100 columns, and as the file that keeps all numbers."""

from dataclasses import asdict, dataclass, replace
from textwrap import shorten
from typing import Any

from rich import box
from rich.table import Table

from tests.benchmarks.gpu.case import AGAIN, BY_HAND, OURS, TIMM, TUTORIAL, WITHOUT_CONVOLUTIONS, Case, Measured
from tests.benchmarks.gpu.ceilings import of_precision
from tests.benchmarks.gpu.parts import PARTS

WIDTH = 100
REASON = 90  # characters; the file has all of them
NOTES = {
    "x": "speed, divided by that of the tutorial's loop in fp32 over the same model and data",
    "FLOPs": "floating-point operations of the model's matrix products and convolutions (torch.utils.flop_counter), "
    "forward and backward, per second, of those of a large matrix product of that precision, measured here; of the "
    "tutorial's fp32 with convolutions, which use TF32 unless told otherwise, of TF32's",
    "bytes": "bytes that each operation of a step is given and returns, counted once, per second, of those that a copy "
    "reads and writes, measured here; nothing is known of compiled steps, which move less",
    "peak": "GB of tensors at most in the steps that were measured (torch.cuda.max_memory_allocated)",
}


@dataclass(frozen=True)
class Row:
    """A case with what came of it: measured, or the reason why not. seconds: that measuring it took."""

    case: Case
    measured: Measured | None
    reason: str | None = None
    seconds: float = 0.0


@dataclass(frozen=True)
class Machine:
    """ceilings: as ceilings.measure found them; flops: per sample, by model."""

    device: str
    ceilings: dict[str, float]
    flops: dict[str, float]

    def share_of_flops(self, row: Row) -> float | None:
        case, measured = row.case, row.measured
        relaxed = case.loop == TUTORIAL and not case.model.startswith(WITHOUT_CONVOLUTIONS)
        best = self.ceilings.get(of_precision(case.precision, self.device, is_tutorial=relaxed))
        if measured is None or best is None or case.model not in self.flops:
            return None
        return self.flops[case.model] * measured.samples_per_second / best

    def share_of_bytes(self, row: Row) -> float | None:
        measured = row.measured
        if measured is None or measured.bytes_per_step is None or "bytes" not in self.ceilings:
            return None
        return measured.bytes_per_step / measured.seconds_per_step / self.ceilings["bytes"]


def table(rows: list[Row], machine: Machine) -> Table:
    found = Table(box=box.SIMPLE_HEAD, pad_edge=False, width=WIDTH)
    for column in ("model", "data"):
        found.add_column(column)
    found.add_column("loop", ratio=1, overflow="fold")
    for column in ("samples/s", *NOTES):
        found.add_column(column, justify="right")
    previous = None
    for row in rows:
        group = (row.case.model, row.case.data)
        if previous is not None and previous != group:
            found.add_section()
        names = group if group != previous else ("", "")
        found.add_row(*names, *_cells(row, rows, machine))
        previous = group
    return found


def _cells(row: Row, rows: list[Row], machine: Machine) -> list[str]:
    if row.measured is None:
        return [f"{row.case.options}: {shorten(row.reason or '', REASON, placeholder='...')}", "-", "", "", "", ""]
    ratio, peak = speed_up(row, rows), row.measured.peak_bytes
    return [
        row.case.options,
        f"{row.measured.samples_per_second:,.0f}",
        f"{ratio:.2f}" if ratio else "",
        _percent(machine.share_of_flops(row)),
        _percent(machine.share_of_bytes(row)),
        f"{peak / 1e9:.1f}" if peak is not None else "",
    ]


def _percent(share: float | None) -> str:
    return "" if share is None else f"{share:.0%}"


def speed_up(row: Row, rows: list[Row]) -> float | None:
    """Over the tutorial's loop in fp32 with the same model and data."""
    for other in rows:
        alike = (other.case.model, other.case.data) == (row.case.model, row.case.data)
        is_base = alike and other.case.loop == TUTORIAL and other.case.precision == "fp32"
        if is_base and other.measured is not None and row.measured is not None:
            return row.measured.samples_per_second / other.measured.samples_per_second
    return None


def overheads(rows: list[Row], *, of: str = BY_HAND) -> dict[str, float]:
    """Our loop's time over that of another one with the same settings, by model."""
    times = {row.case: row.measured.seconds_per_step for row in rows if row.measured is not None}
    others = [case for case in times if case.loop == of]
    return {case.model: times[ours] / times[case] for case in others if (ours := replace(case, loop=OURS)) in times}


def as_json(rows: list[Row], machine: Machine) -> dict[str, Any]:
    return {
        "ceilings": machine.ceilings,
        "flops_per_sample": machine.flops,
        "overheads": overheads(rows),
        "overheads_again": overheads(rows, of=AGAIN),
        "times_of_timm": overheads(rows, of=TIMM),
        "columns": NOTES,
        "parts": PARTS,
        "rows": [
            {
                **asdict(row.case),
                **(asdict(row.measured) if row.measured is not None else {"reason": row.reason}),
                "seconds": row.seconds,
                "share_of_flops": machine.share_of_flops(row),
                "share_of_bytes": machine.share_of_bytes(row),
                "speed_up": speed_up(row, rows),
            }
            for row in rows
        ],
    }
