"""What takes part in the queue in place of slow processes: clients, workers, and runs whose rank only sleeps.

    python -m tests.launchers.flags.queue.stand_in client NAME JOBS SECONDS
    python -m tests.launchers.flags.queue.stand_in worker CORES
    python -m tests.launchers.flags.queue.stand_in run FOLDER DESCRIPTOR
    python -m tests.launchers.flags.queue.stand_in rank FOLDER

The working directory has the queue. In seen/, ranks note what must not happen, and when they began. A client's job
number JOBS // 2 needs both cores.
"""

import fcntl
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import SimpleNamespace

from manyheads.launchers.companions import Accompanied
from manyheads.launchers.companions.room.leasing import leased
from manyheads.launchers.flags.queue.entries import RunQueue
from manyheads.launchers.flags.queue.worker import Worker
from manyheads.runner.commands.queue import add
from manyheads.runner.errors import ConfigurationError
from manyheads.runner.loop.rank_process import _hold_named, hold
from manyheads.runner.machine.process import received_signals
from manyheads.runner.run.run_folder import RunFolder

ROOT = Path(__file__).resolve().parents[4]  # tests.conftest would import torch
SEEN = Path("seen")
MODULE = "tests.launchers.flags.queue.stand_in"


def client(name: str, jobs: int, seconds: float) -> None:
    """Queue all jobs; one that is known already was queued before this client was killed."""
    for number in range(jobs):
        run = RunFolder(f"outputs/{name}.{number}")
        is_new = not run.config.exists()
        if is_new:
            width = 2 if number == jobs // 2 else 1
            run.write_config({"launcher": {"devices": "free"}, "width": width, "seconds": seconds})
        with RunQueue.created() as queue, queue.turn():
            try:
                queue.add(run) if is_new else add(queue, run)
                note("queued", run)
            except ConfigurationError as error:
                if "is in the queue already" not in str(error) and "has ended" not in str(error):
                    raise
        time.sleep(seconds / 4)


def worker(cores: str) -> None:
    os.sched_setaffinity(0, set(map(int, cores.split(","))))
    Worker.program = (sys.executable, "-m", MODULE, "run")
    with RunQueue.created() as queue, received_signals() as signals:
        Worker(queue, signals).work(until_empty=False)


def run(path: str, descriptor: int) -> None:
    """Start the rank once there is room; one that is done already is the checkpoint to continue from."""
    os.set_inheritable(descriptor, False)
    hold(descriptor)
    folder = RunFolder(path)
    launcher = SimpleNamespace(
        takes_free_devices=True, wait=None, nproc_per_node=folder.read_config()["width"], threads_per_rank=1
    )
    accompanied = Accompanied(folder, SimpleNamespace(on_gpus=False, launcher=launcher))  # type: ignore[arg-type]
    done = SEEN / "done" / folder.path.name
    with leased(accompanied):
        if not done.exists():
            code = f"import ctypes; ctypes.CDLL(None).prctl(1, 9); from {MODULE} import rank; rank({path!r})"
            subprocess.run([sys.executable, "-c", code], env={**os.environ, **accompanied.variables})
        status = "completed" if done.exists() else "failed"
        folder.write_json(folder.result, {"status": status, "wall_seconds": 1.0})


def rank(path: str) -> None:
    """Hold the lease and wait; more ranks at once than there are cores, and a second one of this run, are noted."""
    _hold_named(os.environ["MANYHEADS_HELD"])
    folder, cores = RunFolder(path), os.sched_getaffinity(0)
    with ExitStack() as held:
        with locked(SEEN / "turn"):
            for core in cores:
                if not is_free(SEEN / "running" / f"core{core}", held):
                    note("crowded", folder)
            if not is_free(SEEN / "running" / folder.path.name, held):
                note("doubled", folder)
            note("begun", folder)
        time.sleep(folder.read_config()["seconds"])
        try:
            os.close(os.open(SEEN / "done" / folder.path.name, os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            note("doubled", folder)


def note(what: str, run: RunFolder) -> None:
    with open(SEEN / what, "a") as file:
        file.write(f"{run.path.name}\n")


@contextmanager
def locked(path: Path) -> Iterator[None]:
    with open(path, "a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def is_free(path: Path, held: ExitStack) -> bool:
    """Whether nobody else holds this file; from now on this process does."""
    file = held.enter_context(path.open("a"))
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def start(*words: object) -> subprocess.Popen:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / ".names"), str(ROOT)])}
    return subprocess.Popen([sys.executable, "-m", MODULE, *map(str, words)], env=environment)


if __name__ == "__main__":
    what, *words = sys.argv[1:]
    if what == "client":
        client(words[0], int(words[1]), float(words[2]))
    elif what == "worker":
        worker(words[0])
    else:
        run(words[0], int(words[1]))
