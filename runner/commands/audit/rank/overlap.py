"""A rank that reads both splits of a run's data, and counts the samples that they have in common."""

from typing import NoReturn

from manyheads.runner.data.rank.build_data import build_data
from manyheads.runner.data.rank.digests import MOST_SAMPLES, overlap
from manyheads.runner.data.rank.splits import build_split
from manyheads.runner.loop import rank_main as worker
from manyheads.runner.option.run_config import RunConfig
from manyheads.runner.parallel.rank.parallel import Parallel
from manyheads.runner.run.heartbeat import Heartbeat
from manyheads.runner.run.run_folder import RunFolder


def main(path: str) -> NoReturn:
    """Be the only rank. Ends the process. ``path``: the run folder."""
    worker.main(path, work=work)


def work(run: RunConfig, parallel: Parallel, folder: RunFolder, heartbeat: Heartbeat) -> None:
    """Write ``overlap`` to result.json: common samples, the size of both splits, and how many were read at most."""
    data = build_data(run.data)
    train, val = (build_split(data, split, run.data) for split in ("train", "val"))
    sizes = len(train), len(val)
    found = {"common": overlap(train, val), "train": sizes[0], "val": sizes[1], "read": MOST_SAMPLES}
    folder.write_json(folder.result, {"status": "completed", "steps": 0, "overlap": found})
