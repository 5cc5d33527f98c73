"""A rank that finds out what an arm computes on: samples, their order, dtypes, and the evaluated samples."""

from collections import Counter
from itertools import islice

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from manyheads.runner.answers.measure.pace_task import BATCH_STATISTICS
from manyheads.runner.answers.measure.rank.measuring import measuring, program
from manyheads.runner.answers.measure.rank.trace import unsynchronized
from manyheads.runner.data.rank.digests import digest_of_ids, overlap, split_digest
from manyheads.runner.loop.session import Session
from manyheads.runner.loop.trainer import Trainer

UPDATES = 50  # whose samples are compared
PRODUCTS = ("mm", "bmm", "addmm", "baddbmm", "convolution", "linear", "attention", "matmul", "einsum")


class ProductDtypes(TorchDispatchMode):
    """Counts the matrix products and convolutions in the context by the dtype in which they are computed."""

    def __init__(self) -> None:
        super().__init__()
        self.counts: Counter[str] = Counter()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
        out = func(*args, **(kwargs or {}))
        if any(product in func.overloadpacket.__name__ for product in PRODUCTS):
            dtype = next((str(argument.dtype) for argument in args if isinstance(argument, torch.Tensor)), "unknown")
            self.counts[dtype.removeprefix("torch.")] += 1
        return out


def facts(session: Session) -> None:
    """Make one update, list the samples of the first UPDATES, and write ``facts`` to result.json."""
    trainer = session.trainer
    session.update.prime(trainer.train.example)
    ids, samples = _consumed(trainer)
    dtypes = _dtypes(trainer)
    train, val = trainer.train.batches.dataset, trainer.evaluation.loader.batches.dataset
    trainer.heartbeat.beat()
    session.conclude(
        facts={
            "per_epoch": trainer.train.updates,
            "order": ids,
            "samples_per_update": samples,
            "dtypes": dtypes,
            "matmul": torch.get_float32_matmul_precision(),
            BATCH_STATISTICS: any(map(unsynchronized, session.parallel.unwrap(session.update.model).modules())),
            "train": split_digest(train),
            "val": split_digest(val),
            "evaluated": _evaluated(trainer),
            "overlap": overlap(val, train),
        }
    )


def _dtypes(trainer: Trainer) -> dict[str, int]:
    """The dtypes of the products in one update, which counts as the run's first; empty for a compiled model."""
    trainer.update.enter_training()
    batches = next(trainer.updates(trainer.train.epoch(0)))
    with ProductDtypes() as dtypes:
        step = trainer.update(batches, number=0, wants_norm=False)
    trainer.count(batches, step)
    trainer.collect_all()
    return dict(dtypes.counts)


def _evaluated(trainer: Trainer) -> int:
    """How many samples an evaluation counts, on all ranks."""
    requests = trainer.evaluation.loader.sampler.epoch(0)
    return sum(trainer.update.parallel.gather(sum(request.count for request in requests)))


def _consumed(trainer: Trainer) -> tuple[str, list[int]]:
    """A digest of the samples that the first updates take on all ranks, and the number of samples in each update."""
    updates = islice(trainer.updates(trainer.train.epoch(0)), UPDATES)
    ids = [[index for batch in update for index in batch.ids] for update in updates]
    ranks = trainer.update.parallel.gather(ids)
    together = [sorted(index for rank in ranks for index in rank[step]) for step in range(len(ids))]
    return digest_of_ids(together), [len(update_ids) for update_ids in together]


main = program(measuring(facts), __name__)
