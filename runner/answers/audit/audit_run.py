"""Recomputes which samples a run should have taken, and compares them with its records."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise

import numpy as np

from manyheads.launchers.launch import launch, prepare
from manyheads.runner.answers.audit.answer import Audit, Finding, Overlap
from manyheads.runner.answers.audit.due import ORDERS, Due, RecordedOrder, culprits
from manyheads.runner.answers.audit.records import (
    BitmapRow,
    SkippedUpdate,
    TakenRow,
    read_skipped,
    read_spikes,
    read_taken,
)
from manyheads.runner.data.keys import Multiset
from manyheads.runner.data.order import Order
from manyheads.runner.errors import ConfigurationError
from manyheads.runner.machine.process import handled_by, interrupt
from manyheads.runner.option.run_config import RunConfig
from manyheads.runner.option.tree import Section
from manyheads.runner.provenance.changed_data import described_change
from manyheads.runner.provenance.past_config import PastConfig
from manyheads.runner.run import scratch
from manyheads.runner.run.data_files import log_file
from manyheads.runner.run.progress import each, working
from manyheads.runner.run.run_folder import RunFolder

RANK = "manyheads.runner.answers.audit.rank"
ALONE = ("parallel=single", "launcher=inline", "checkpoint.resume=null", "checkpoint.load=null")


def audit(path: str, *, reads_data: bool = True) -> Audit:
    """Audit a run. ``reads_data``: also compare the contents of all splits. Raises ConfigurationError, RunFailed."""
    folder = RunFolder(path)
    config = folder.read_config()
    taken, seen = read_taken(folder)
    result = folder.read_result() or {}
    steps = result.get("steps") or 0 if result.get("status") in ("completed", "interrupted") else 0
    is_drawn = config["data"].get("sampler") is not None
    if is_drawn and not reads_data:
        raise ConfigurationError(
            "data.sampler draws from the data, so records alone don't show what was due. Leave out --records."
        )
    run = PastConfig.admitted(folder, []).checked(*ALONE) if reads_data else None
    overlap, order = _read(run) if run else (None, None)
    plans = {size: Due(config, size, order) for size in sorted({row.size for row in taken})}
    findings = list(_compared(taken, seen, config, plans, steps=steps))
    skipped = read_spikes(folder)
    if taken:
        findings += _skipped_otherwise(skipped, plans[taken[-1].size])
    if run is not None and (change := described_change(folder, run.data)) is not None:
        findings.append(Finding("changed", None, None, None, change))
    if overlap is not None:
        shared = {
            "validation samples are training": overlap.common,
            "test samples are training or validation": overlap.tested,
        }
        texts = [f"{count:,} {which} samples" for which, count in shared.items() if count]
        findings += [Finding("overlap", None, None, None, text) for text in texts]
    return _answer(folder, config, taken, skipped, findings, overlap, plans[taken[-1].size] if taken else None)


def _answer(
    folder: RunFolder,
    config: Section,
    taken: Sequence[TakenRow],
    skipped: list[SkippedUpdate],
    findings: list[Finding],
    overlap: Overlap | None,
    due: Due | None,
) -> Audit:
    ends = {row.last for row in taken}
    complete = [row.epoch for row in taken if due and row.first == (row.epoch - 1) * due.updates + 1]
    return Audit(
        run=str(folder),
        first=taken[0].first if taken else 0,
        last=taken[-1].last if taken else 0,
        epochs=sum(due is not None and epoch * due.updates in ends for epoch in complete),
        samples=sum(row.samples for row in taken),
        size=0 if due is None else due.size,
        dropped=0 if due is None or due.is_drawn else due.size - len(np.unique(due.samples(1, 1, due.updates))),
        is_drawn=due is not None and due.is_drawn,
        is_stream=config["data"].get("order") == "stream",
        earlier=config["checkpoint"]["resume"] if taken and taken[0].first > 1 else None,
        findings=findings,
        skipped=read_skipped(folder),
        skipped_updates=skipped,
        overlap=overlap,
    )


def _compared(
    taken: Sequence[TakenRow], seen: Sequence[BitmapRow], config: Section, plans: Mapping[int, Due], *, steps: int
) -> Iterator[Finding]:
    """The findings about the rows. ``steps``: the number of updates that the run reports."""
    if not taken:
        return
    yield from _unrecorded(taken, config, steps)
    by_epoch: dict[int, list[TakenRow]] = defaultdict(list)
    for row in taken:
        by_epoch[row.epoch].append(row)
    for epoch, rows in each(by_epoch.items(), "comparing epochs"):
        if wrong := [row for row in rows if not _is_due(row, plans[row.size])]:
            yield from culprits(wrong, [part for part in seen if part.epoch == epoch], plans[wrong[0].size])
        for due in plans.values():
            if not due.is_drawn:
                yield from _not_once(epoch, due)


def _is_due(row: TakenRow, due: Due) -> bool:
    begin = (row.epoch - 1) * due.updates
    if not begin < row.first <= row.last <= begin + due.updates:
        return False
    expected = Multiset.of(due.drawn(row.epoch), due.samples(row.epoch, row.first, row.last))
    return (expected.count, expected.value) == (row.samples, row.digest)


def _skipped_otherwise(skipped: Sequence[SkippedUpdate], due: Due) -> Iterator[Finding]:
    """Samples that a skipped update took, by its ranks' record, but that were not due in it; one for each update."""
    for update in skipped:
        begin = (update.epoch - 1) * due.updates
        is_within = begin < update.update <= begin + due.updates
        due_samples = due.samples(update.epoch, update.update, update.update).tolist() if is_within else []
        for sample in sorted({*update.samples} - {*due_samples})[:1]:
            text = f"epoch {update.epoch}: update {update.update} skipped sample {sample}, which was not due in it"
            yield Finding("foreign", update.epoch, update.update, sample, text)


def _not_once(epoch: int, due: Due) -> Iterator[Finding]:
    """An epoch in which a sample is due more than once: a fault of the order itself."""
    count = np.zeros(due.size, np.uint8)
    begin = (epoch - 1) * due.updates
    np.add.at(count, due.samples(epoch, begin + 1, begin + due.updates), 1)
    for sample in np.flatnonzero(count > due.batches.repeats)[:1].tolist():
        yield Finding("doubled", epoch, None, sample, f"epoch {epoch}: the order has sample {sample} more than once")


def _unrecorded(taken: Sequence[TakenRow], config: Section, steps: int) -> Iterator[Finding]:
    """Updates without a row, or with several; and data whose size changed."""
    if taken[0].first > 1 and config["checkpoint"]["resume"] is None:
        yield Finding("unrecorded", 1, 1, None, f"updates 1 to {taken[0].first - 1} have no record")
    for one, other in pairwise(taken):
        if other.first > one.last + 1:
            text = f"updates {one.last + 1} to {other.first - 1} have no record"
            yield Finding("unrecorded", other.epoch, one.last + 1, None, text)
        elif other.first <= one.last:
            text = f"updates {other.first} to {min(one.last, other.last)} are recorded twice"
            yield Finding("recorded twice", other.epoch, other.first, None, text)
        if other.size != one.size:
            text = f"from update {other.first} on there are {other.size:,} training samples, before {one.size:,}"
            yield Finding("resized", other.epoch, other.first, None, text)
    if steps > taken[-1].last:
        text = f"updates {taken[-1].last + 1} to {steps} have no record"
        yield Finding("unrecorded", taken[-1].epoch, taken[-1].last + 1, None, text)


def _read(run: RunConfig) -> tuple[Overlap, Order | None]:
    """The samples that splits share, and data.sampler's order, None without one, read by a separate process.

    Raises ConfigurationError, RunFailed.
    """
    with scratch.folder() as scratch_folder:
        folder = RunFolder(scratch_folder / "run")
        folder.write_config(run.written)
        with handled_by(interrupt), log_file(folder.log), working("reading the samples of all splits"):
            launch(prepare(folder, apart=True), main=RANK)
        overlap = Overlap(**(folder.read_result() or {})["overlap"])  # type: ignore[typeddict-item]
        orders = folder.path / ORDERS
        return overlap, RecordedOrder(np.load(orders)) if orders.exists() else None
