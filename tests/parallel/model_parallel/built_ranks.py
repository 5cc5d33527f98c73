"""Ranks that build one model after another, and write how much memory that took, for ``test_deferred``."""

import ctypes
import gc
import json
import os
import re
from pathlib import Path
from typing import Any, NoReturn

from manyheads.runner.loop import build
from manyheads.runner.loop import rank_main as worker
from manyheads.runner.loop.state import TrainingState
from manyheads.runner.option.run_config import RunConfig
from manyheads.runner.run.heartbeat import Heartbeat
from manyheads.runner.run.run_folder import RunFolder
from tests.parallel.together import CASES

MAIN = "tests.parallel.model_parallel.built_ranks"


def main(path: str) -> NoReturn:
    """Be one of these ranks. Ends the process."""
    worker.main(path, work=work)


def work(_: RunConfig, parallel: Any, folder: RunFolder, heartbeat: Heartbeat) -> None:
    rank = {"rank": parallel.rank, "local_rank": parallel.local_rank, "world_size": parallel.world_size}
    for name, case in json.loads((folder.path / CASES).read_text()).items():
        parallel.gather("all have done with the last one")
        parallel.leave()
        os.environ["MANYHEADS_MEETING"] = f"{folder.path}/{name}.meeting"
        run = RunConfig.of(case)
        parallel = build.join(run, **rank)
        gc.collect()
        ctypes.CDLL(None).malloc_trim(0)  # what earlier models have left would be used again, and not count
        Path("/proc/self/clear_refs").write_text("5")  # the peak is the current size from now on
        before = in_memory("VmRSS")
        trainer = build.build_unrecorded(run, parallel, folder, heartbeat)
        grown = in_memory("VmHWM") - before
        digest = TrainingState(trainer).weights_sha256()
        result = {"grown": grown, "digest": digest, "built_whole": parallel.built_whole}
        (folder.path / f"{name}.{parallel.rank}.json").write_text(json.dumps(result))
        trainer.close()
        del trainer
        heartbeat.beat()


def in_memory(figure: str) -> int:
    """Bytes of this process, by the name of the figure in its status."""
    found = re.search(rf"{figure}:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert found
    return int(found[1]) * 1024
