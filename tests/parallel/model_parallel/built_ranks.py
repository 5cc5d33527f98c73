"""Ranks that build one model after another, and write how much memory that took, for ``test_deferred``."""

import ctypes
import gc
import json
import os
import re
from pathlib import Path
from typing import Any, NoReturn

from manyheads.runner.checkpoint.rank.checkpoints import CheckpointStore
from manyheads.runner.checkpoint.rank.load import weights_sha256
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
        state = TrainingState(trainer)
        if run.checkpoint.resume is not None:
            store = CheckpointStore(RunFolder(folder.path / name), every=0, keep=0)
            state.load(store.last(otherwise=run.checkpoint.resume, ranks=parallel))
            gc.collect()
        result = {"grown": in_memory("VmHWM") - before, "built_whole": parallel.built_whole}
        result |= {"digest": state.weights_sha256(), "moments": moments_sha256(state.learned()["optimizer"])}
        (folder.path / f"{name}.{parallel.rank}.json").write_text(json.dumps(result))
        trainer.close()
        del trainer, state
        heartbeat.beat()


def moments_sha256(optimizer: dict[str, Any]) -> str:
    """The digest of an optimizer's state, without what has one value for each weight."""
    moments = {
        f"{number} {key}": value for number, values in optimizer["state"].items() for key, value in values.items()
    }
    return weights_sha256({name: value for name, value in moments.items() if value.ndim})


def in_memory(figure: str) -> int:
    """Bytes of this process, by the name of the figure in its status."""
    found = re.search(rf"{figure}:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert found
    return int(found[1]) * 1024
