"""The samples that the updates of a run should have taken, from its config alone, and where its records differ."""

from collections.abc import Sequence

import numpy as np

from manyheads.runner.answers.audit.answer import Finding
from manyheads.runner.answers.audit.records import BitmapRow, SamplesRow, TakenRow
from manyheads.runner.data.global_batches import GlobalBatches
from manyheads.runner.data.keys import hashes
from manyheads.runner.data.order import Order, build_order
from manyheads.runner.option.tree import Section

CHUNK = 2**20  # samples at a time
ORDERS = "orders.npy"  # in the folder of the rank that reads the data


class RecordedOrder(Order):
    """An order that a rank has written down. samples: (epochs, N) int64."""

    summary = ""

    def __init__(self, samples: np.ndarray):
        self._samples, self.size = samples, samples.shape[1]

    def at(self, epoch: int, positions: np.ndarray) -> np.ndarray:
        return self._samples[epoch, positions]


class Due:
    """The due samples of a run with ``size`` training samples. Epochs and updates are counted from 1.

    ``drawn_order``: that of data.sampler, None without one.
    """

    def __init__(self, config: Section, size: int, drawn_order: Order | None = None):
        data, trainer = config["data"], config["trainer"]
        block, window = data.get("order_block"), data.get("order_window")
        usual = build_order(data.get("order", "shuffle"), size, seed=config["seed"], block=block, window=window)
        self.size, self.order, self.is_drawn = size, drawn_order or usual, drawn_order is not None
        self.batches = GlobalBatches(
            self.order.size,
            batch_size=data["batch_size"],
            drop_last=data["drop_last"],
            limit=trainer["limit_train"],
            overfit=trainer["overfit"],
            repeats=trainer["aug_repeats"],
        )

    @property
    def updates(self) -> int:
        """Number of updates in an epoch."""
        return self.batches.updates

    def drawn(self, epoch: int) -> int:
        """The number of the epoch, from 0, with which its samples are hashed; see ``GlobalBatches.drawn``."""
        return self.batches.drawn(epoch - 1)

    def samples(self, epoch: int, first: int, last: int) -> np.ndarray:
        """The samples of updates ``first`` to ``last``, in their order, (N,); only those of the epoch."""
        begin = (epoch - 1) * self.updates
        steps = range(max(0, first - 1 - begin), min(self.updates, last - begin))
        chosen = [self.batches.positions(update)[0] for update in steps]
        return self.order.at(self.drawn(epoch), np.concatenate([np.empty(0, np.int64), *chosen]))

    def update_of(self, epoch: int, samples: list[int]) -> dict[int, int]:
        """The update of an epoch in which each of these samples is due, without those that the epoch does not take."""
        update_of_sample: dict[int, int] = {}
        step, begin = max(1, CHUNK // self.batches.batch_size), (epoch - 1) * self.updates
        for first in range(1, self.updates + 1, step):
            due_samples = self.samples(epoch, begin + first, begin + min(first + step - 1, self.updates))
            for at in np.flatnonzero(np.isin(due_samples, samples)).tolist():
                update_of_sample[int(due_samples[at])] = begin + first + at // self.batches.batch_size
        return update_of_sample


MOST = 20  # samples that are named, for each kind of finding and part of an epoch


def culprits(wrong: Sequence[TakenRow], seen: Sequence[BitmapRow], due: Due) -> list[Finding]:
    """The findings in one epoch. ``wrong``: its rows whose samples are not the due ones; ``seen``: its bitmaps."""
    if due.is_drawn:  # an epoch may take a sample several times, or never
        return [_unnamed(row) for row in wrong]
    findings: list[Finding] = []
    left = list(wrong)
    for part in (bitmap for bitmap in seen if bitmap.size == due.size):
        rows = [row for row in left if part.first <= row.first and row.last <= part.last]
        if not rows:
            continue
        left = [row for row in left if row not in rows]
        findings += _by_bits(part, due) or _exchanged(rows, due) or [_unnamed(row) for row in rows]
    for row in left:  # their bitmap was lost when a rank died
        findings += _by_hash(row, due) or [_unnamed(row)]
    return findings


def _by_bits(part: BitmapRow, due: Due) -> list[Finding]:
    """Samples that are lost, doubled or foreign in a part of an epoch, found by its bitmap."""
    samples, took = due.samples(part.epoch, part.first, part.last), part.mask()
    expected = np.zeros(due.size, bool)
    expected[samples] = True
    lost = np.flatnonzero(expected & ~took)[:MOST].tolist()
    foreign = np.flatnonzero(took & ~expected)[:MOST].tolist()
    where = due.update_of(part.epoch, [*lost, *foreign, *part.again[:MOST]])
    return [
        *(_finding("lost", part, sample, where) for sample in lost),
        *(_finding("doubled", part, sample, where) for sample in part.again[:MOST]),
        *(_finding("foreign", part, sample, where) for sample in foreign),
    ]


def _exchanged(rows: Sequence[TakenRow], due: Due) -> list[Finding]:
    """Two samples that were exchanged between the updates of two rows, if that explains the digests of both."""
    for number, one in enumerate(rows):
        for other in rows[:number]:
            mine, theirs = (due.samples(row.epoch, row.first, row.last) for row in (one, other))
            gap = _gap(one, mine, due)
            if (gap + _gap(other, theirs, due)) % 2**64:
                continue
            epoch = due.drawn(one.epoch)
            looked_for = hashes(epoch, mine) + np.uint64(gap)
            if len(at := np.flatnonzero(np.isin(looked_for, hashes(epoch, theirs)))):
                gone = int(mine[at[0]])
                came = int(theirs[np.flatnonzero(hashes(epoch, theirs) == looked_for[at[0]])[0]])
                where = due.update_of(one.epoch, [gone, came])
                text = f"samples {came} and {gone}, of updates {where[came]} and {where[gone]}, were exchanged"
                return [Finding("exchanged", one.epoch, where[gone], gone, f"epoch {one.epoch}: {text}")]
    return []


def _by_hash(row: TakenRow, due: Due) -> list[Finding]:
    """The single sample that is lost, doubled or replaced, found by trying all samples; none if there are more."""
    samples = due.samples(row.epoch, row.first, row.last)
    gap, epoch = _gap(row, samples, due), due.drawn(row.epoch)
    more, hashed = row.samples - len(samples), hashes(epoch, samples)
    step = {sample: row.first + at // due.batches.batch_size for at, sample in enumerate(samples.tolist())}
    if more == -1 and len(at := np.flatnonzero(hashed == np.uint64(-gap % 2**64))):
        return [_finding("lost", row, int(samples[at[0]]), step)]
    if more not in (0, 1):
        return []
    wanted = hashed + np.uint64(gap) if more == 0 else np.array([gap], np.uint64)
    for start in range(0, due.size, CHUNK):
        some = np.arange(start, min(start + CHUNK, due.size))
        them = hashes(epoch, some)
        if len(at := np.flatnonzero(np.isin(them, wanted))):
            came = int(some[at[0]])
            kind, where = ("doubled", step) if came in step else ("foreign", due.update_of(row.epoch, [came]))
            lost = [] if more == 1 else [int(samples[np.flatnonzero(wanted == them[at[0]])[0]])]
            return [*(_finding("lost", row, gone, step) for gone in lost), _finding(kind, row, came, where)]
    return []


def _gap(row: TakenRow, samples: np.ndarray, due: Due) -> int:
    """The recorded sum of hashes minus the due one, modulo 2**64."""
    return (row.digest - int(hashes(due.drawn(row.epoch), samples).sum(dtype=np.uint64))) % 2**64


def _finding(kind: str, row: SamplesRow, sample: int, where: dict[int, int]) -> Finding:
    update = where.get(sample)
    whose = "no update of this epoch" if update is None else f"update {update}"
    text = {
        "lost": f"sample {sample} was lost: {whose} should have taken it",
        "doubled": f"sample {sample}, which {whose} takes, was taken more than once",
        "foreign": f"sample {sample} was taken in updates {row.first} to {row.last}, but it is due in {whose}",
    }[kind]
    return Finding(kind, row.epoch, update, sample, f"epoch {row.epoch}: {text}")


def _unnamed(row: TakenRow) -> Finding:
    text = f"updates {row.first} to {row.last} took other samples than were due; which ones was not recorded"
    return Finding("unnamed", row.epoch, row.first, None, f"epoch {row.epoch}: {text}")
