"""Ranks that train one run after another: starting them takes seconds, so that many cases share theirs."""

import json
import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any, NoReturn

from manyheads.launchers.launch import launch, prepare
from manyheads.runner.loop import rank_main as worker
from manyheads.runner.loop.session import Session
from manyheads.runner.option.run_config import RunConfig
from manyheads.runner.run.heartbeat import Heartbeat
from manyheads.runner.run.rank_info import RankInfo
from manyheads.runner.run.run_folder import RunFolder
from tests.in_process import small, train

CASES = "cases.json"
MAIN = "tests.parallel.together"


def train_together(
    path: Path, ranks: int, cases: dict[str, Callable[[], tuple[str, ...]]], *, main: str = MAIN
) -> None:
    """Train every case's run in ``path / name``, in this order, on so many ranks.

    ``cases``: their overrides by name. One may resume another, whose checkpoint is not yet there; ``main``: the module
    whose ``main`` each rank is.
    """
    folder = RunFolder(path)
    configs = {}
    for name, overrides in cases.items():
        given = [*overrides(), f"launcher.nproc_per_node={ranks}"]
        resumed = [each.partition("=")[2] for each in given if each.startswith("checkpoint.resume=")]
        configs[name] = small(*(each for each in given if not each.startswith("checkpoint.resume=")))
        configs[name]["checkpoint"]["resume"] = resumed[0] if resumed else None
    folder.write_config(small("parallel=ddp", f"launcher.nproc_per_node={ranks}", f"data.batch_size={ranks}"))
    (path / CASES).write_text(json.dumps(configs))
    launch(prepare(folder), main=main)


def main(path: str) -> NoReturn:
    """Be one of these ranks. Ends the process."""
    worker.main(path, work=work)


def work(_: RunConfig, parallel: Any, folder: RunFolder, heartbeat: Heartbeat) -> None:
    for _ in trained(parallel, folder, heartbeat):
        pass


def trained(
    parallel: Any,
    folder: RunFolder,
    heartbeat: Heartbeat,
    *,
    beside: Callable[[Path], AbstractContextManager[Any]] = nullcontext,
) -> Iterator[tuple[str, Session]]:
    """The cases with what they came to, one after the other. ``beside``: the context of one's run, by its folder."""
    here = RankInfo(parallel.rank, parallel.local_rank, parallel.world_size)
    for name, case in json.loads((folder.path / CASES).read_text()).items():
        parallel.gather("all have done with the last one")
        parallel.leave()
        os.environ["MANYHEADS_MEETING"] = f"{folder.path}/{name}.meeting"
        (folder.path / name).mkdir(exist_ok=True)
        try:
            with beside(folder.path / name):
                session = train(folder.path / name, case, place=here)
        except Exception as error:
            raise RuntimeError(f"in the case {name}") from error
        parallel = session.parallel
        yield name, session
        heartbeat.beat()
