"""A rank that reads all splits of a run's data: the samples that they have in common, and those of data.sampler."""

import numpy as np

from manyheads.runner.answers.audit.due import ORDERS
from manyheads.runner.answers.measure.rank.measuring import program
from manyheads.runner.data.rank.build_data import build_data, build_sampler
from manyheads.runner.data.rank.digests import MOST_SAMPLES, overlap
from manyheads.runner.data.rank.splits import build_split
from manyheads.runner.option.run_config import RunConfig
from manyheads.runner.parallel.rank.parallel import Parallel
from manyheads.runner.run.heartbeat import Heartbeat
from manyheads.runner.run.run_folder import RunFolder


def work(run: RunConfig, parallel: Parallel, folder: RunFolder, heartbeat: Heartbeat) -> None:
    """Write ``overlap`` to result.json: common samples, the size of each split, and how many were read at most.

    The test split is read if the run uses it. With data.sampler, ORDERS has each epoch's samples, (epochs, N) int64.
    """
    data = build_data(run.data)
    train, val = (build_split(data, split, run.data) for split in ("train", "val"))
    counts = {"common": overlap(val, train), "train": len(train), "val": len(val), "read": MOST_SAMPLES}
    if run.trainer.test:
        test = build_split(data, "test", run.data)
        counts |= {"test": len(test), "tested": overlap(test, train, val)}
    if run.data.sampler is not None:
        sampler = build_sampler(run.data, run.trainer, train, parallel, seed=run.seed)
        epochs, positions = run.trainer.epochs_in(sampler.updates), np.arange(sampler.order.size)
        np.save(folder.path / ORDERS, np.stack([sampler.order.at(epoch, positions) for epoch in range(epochs)]))
    folder.write_json(folder.result, {"status": "completed", "steps": 0, "overlap": counts})


main = program(work, __name__)
