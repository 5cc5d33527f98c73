"""The record of samples: samples.csv (taken by updates), skipped.csv (unreadable), spikes.csv (of skipped updates)."""

from collections.abc import Sequence
from typing import Any

from manyheads.runner.data.keys import Multiset, added
from manyheads.runner.data.rank.batches import Unreadable
from manyheads.runner.data.rank.taken import Seen
from manyheads.runner.loop.guards.spikes import Spike
from manyheads.runner.loop.log_windows import LogWindow
from manyheads.runner.parallel.rank.parallel import Parallel
from manyheads.runner.parallel.rank.passes import ForwardResult
from manyheads.runner.run.tables.writer import NullWriter

UPDATES = 50  # of a row; fewer at a checkpoint and at an epoch's end


class SampleRecord:
    """Writes the rows, on the rank that has the tables. ``size``: the number of training samples."""

    def __init__(self, recorder: NullWriter, parallel: Parallel, *, size: int):
        self._recorder, self._parallel, self._size = recorder, parallel, size
        self._skipped: list[tuple[int, Unreadable]] = []
        self.start(0)

    def start(self, step: int) -> None:
        """Training starts, or is resumed, after this update."""
        self._step = self._seen = step  # the last update of the last row, of either kind
        self._open: list[Multiset] = []
        self._updates = 0

    def add(self, epoch: int, window: LogWindow) -> None:
        """Count a window of updates of an epoch, counted from 0."""
        sums = window.sums
        self._open.append(Multiset(sums.taken, sums.taken_low, sums.taken_high))
        self._updates += window.updates
        if self._updates >= UPDATES:
            self._write(epoch)

    def seen(self, epoch: int, step: int, seen: Seen | None) -> None:
        """Complete the rows up to this update. ``seen``: what all ranks took since the last call, if known."""
        self._write(epoch)
        if seen is not None and step > self._seen:
            again = " ".join(map(str, seen.again))
            self._row(epoch, self._seen + 1, step, bits=seen.bits, again=again)
        self._seen = step

    def skip(self, epoch: int, found: Sequence[Unreadable]) -> None:
        """Note samples that this rank could not read."""
        self._skipped += [(epoch + 1, each) for each in found]

    def skipped(self, step: int) -> None:
        """Write what no rank could read in updates up to this one; all ranks call it."""
        own, self._skipped = self._skipped, []
        everyone = {each for rank in self._parallel.gather(own) for each in rank}  # some of them read the same samples
        for epoch, (sample, path, reason) in sorted(everyone):
            self._recorder.skipped({"epoch": epoch, "step": step, "sample": sample, "path": path, "reason": reason})

    def spike(self, epoch: int, step: int, spike: Spike, passes: Sequence[ForwardResult]) -> None:
        """Write an update that was skipped for this spike, with its samples; all ranks call it."""
        counted = [each.taken for each in passes if self._parallel.counts_samples]
        own = [sample for taken in counted if taken and not isinstance(taken, Multiset) for sample in taken[1].tolist()]
        samples = " ".join(str(each) for rank in self._parallel.gather(own) for each in rank)
        self._recorder.spike(
            {
                "epoch": epoch + 1,
                "step": step,
                "spike": spike.step,
                "reason": spike.reason,
                **{name: getattr(spike, name) for name in ("loss", "loss_limit", "norm", "norm_limit")},
                "samples": samples,
            }
        )

    def _write(self, epoch: int) -> None:
        if self._updates:
            whole, last = added(self._open), self._step + self._updates
            self._row(epoch, self._step + 1, last, samples=int(whole.count), digest=whole.digest)
            self._step, self._open, self._updates = last, [], 0

    def _row(self, epoch: int, first: int, step: int, **values: Any) -> None:
        empty = dict.fromkeys(("samples", "digest", "bits", "again"), "")
        self._recorder.taken({"epoch": epoch + 1, "first": first, "step": step, "of": self._size, **empty, **values})
