"""The record of samples: samples.csv (taken by updates), skipped.csv (unreadable)."""

from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor

from manyheads.runner.data.keys import Multiset, added
from manyheads.runner.data.rank.batches import Batch, Unreadable
from manyheads.runner.data.rank.taken import Seen, Taken
from manyheads.runner.loop.log_windows import LogWindow
from manyheads.runner.loop.meter import Sums
from manyheads.runner.loop.observers.observer import Observer
from manyheads.runner.loop.progress import Progress
from manyheads.runner.loop.reporter import Reporter
from manyheads.runner.loop.update import UpdateResult
from manyheads.runner.parallel.rank.parallel import Parallel

UPDATES = 50  # of a row; fewer at a checkpoint and at an epoch's end


class SampleRecord(Observer):
    """Writes the rows, on the rank that has the tables. ``taken``: the samples of this rank's updates."""

    def __init__(self, reporter: Reporter, parallel: Parallel, taken: Taken):
        self._reporter, self._recorder, self._parallel, self._taken = reporter, reporter.recorder, parallel, taken
        self._skipped: list[tuple[int, Unreadable]] = []
        self._are_skipped = False  # whether a window since the last exchange has samples that could not be read
        self._begin(0)

    def _begin(self, step: int) -> None:
        self._step = self._seen = step  # the last update of the last row, of either kind
        self._open: list[Multiset] = []
        self._updates = 0

    def start(self, progress: Progress) -> None:
        self._begin(progress.step)

    def updated(self, progress: Progress, batches: list[Batch], result: UpdateResult) -> None:
        if self._parallel.counts_samples:
            for passed in result.passes:
                self._taken.add(passed)
        for batch in batches:
            if batch.corrupt:
                self._reporter.note_corrupt(batch.corrupt)
                self._skipped += [(progress.epoch + 1, sample) for sample in batch.corrupt]

    def window_closed(self) -> None:
        self._taken.close()

    def exchanging(self, windows: Sequence[Sums]) -> None:
        for sums, taken in zip(windows, self._taken.collect(), strict=True):
            sums.take(dict(zip(("taken", "taken_low", "taken_high"), taken, strict=True)))

    def window_exchanged(self, progress: Progress, window: LogWindow) -> None:
        sums = window.sums
        self._open.append(Multiset(sums.taken, sums.taken_low, sums.taken_high))
        self._updates += window.updates
        self._are_skipped |= bool(sums.corrupt)
        if self._updates >= UPDATES:
            self._write(progress.epoch)

    def exchanged(self, progress: Progress, by_rank: Tensor) -> None:
        if self._are_skipped:  # on all ranks
            self._write_skipped(progress.step)

    def settled(self, progress: Progress) -> None:
        """Complete the rows up to this update."""
        seen: Seen | None = self._taken.flush(self._parallel)
        self._write(progress.epoch)
        if seen is not None and progress.step > self._seen:
            again = " ".join(map(str, seen.again))
            self._row(progress.epoch, self._seen + 1, progress.step, bits=seen.bits, again=again)
        self._seen = progress.step

    def concluding(self) -> Mapping[str, Any]:
        ranks = self._parallel.gather([*self._reporter.corrupt])
        return {"corrupt_files": sorted({path for paths in ranks for path in paths})}

    def _write_skipped(self, step: int) -> None:
        """Write what no rank could read in updates up to this one; all ranks call it."""
        skipped, self._skipped, self._are_skipped = self._skipped, [], False
        ranks = {sample for rank in self._parallel.gather(skipped) for sample in rank}  # some read the same samples
        for epoch, (sample, path, reason) in sorted(ranks):
            self._recorder.skipped({"epoch": epoch, "step": step, "sample": sample, "path": path, "reason": reason})

    def _write(self, epoch: int) -> None:
        if self._updates:
            total, last = added(self._open), self._step + self._updates
            self._row(epoch, self._step + 1, last, samples=int(total.count), digest=total.digest)
            self._step, self._open, self._updates = last, [], 0

    def _row(self, epoch: int, first: int, step: int, **values: Any) -> None:
        empty = dict.fromkeys(("samples", "digest", "bits", "again"), "")
        self._recorder.taken(
            {"epoch": epoch + 1, "first": first, "step": step, "of": self._taken.size, **empty, **values}
        )
