"""Runs jobs one after the other, each in a rank of its own on one free core; the rank notes who else runs.

python client.py FOLDER FIRST CORES     # the jobs FIRST.0 to FIRST.24 that have not been done
"""

import fcntl
import os
import random
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

from manyheads.runner.loop.rank_process import _hold_named

JOBS = 25


def rank(folder: Path, job: str) -> None:
    """Hold the lease and compute for a moment; more than two ranks at once, or two on a core, are recorded."""
    _hold_named(os.environ["MANYHEADS_HELD"])
    with open(folder / "turn", "a") as turn:
        fcntl.flock(turn, fcntl.LOCK_EX)
        running = [path.name for path in (folder / "running").iterdir() if _is_locked(path)]
        (core,) = os.sched_getaffinity(0)
        mark = os.open(folder / "running" / f"{core}-{os.getpid()}", os.O_CREAT | os.O_RDWR | os.O_CLOEXEC)
        fcntl.flock(mark, fcntl.LOCK_EX)
    if len(running) > 1 or any(name.startswith(f"{core}-") for name in running):
        (folder / "crowded" / job).write_text(f"{core}: {running}")
    time.sleep(random.uniform(0.01, 0.1))
    (folder / "done" / job).touch()


def _is_locked(path: Path) -> bool:
    with open(path) as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def run(folder: Path, job: str) -> None:
    """Start the rank of a job once a core is free, and wait for it."""
    from manyheads.launchers.companions import Accompanied
    from manyheads.launchers.companions.room.leasing import leased

    launcher = SimpleNamespace(takes_free_devices=True, wait=None, nproc_per_node=1, threads_per_rank=1)
    config = SimpleNamespace(on_gpus=False, launcher=launcher)
    accompanied = Accompanied(SimpleNamespace(path=folder / job), config)  # type: ignore[arg-type]
    with leased(accompanied):
        environment = {**os.environ, **accompanied.variables}
        code = (
            "import ctypes, sys; ctypes.CDLL(None).prctl(1, 9); from pathlib import Path; "
            "from tests.launchers.companions.room.client import rank; rank(Path(sys.argv[1]), sys.argv[2])"
        )
        subprocess.run([sys.executable, "-c", code, str(folder), job], env=environment)


if __name__ == "__main__":
    os.sched_setaffinity(0, set(map(int, sys.argv[3].split(","))))
    for number in range(JOBS):
        while not (Path(sys.argv[1]) / "done" / (name := f"{sys.argv[2]}.{number}")).exists():
            run(Path(sys.argv[1]), name)
