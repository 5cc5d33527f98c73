"""Frozen runs to launch from this process, and real parents to signal."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest

from manyheads.launchers.job import Job
from manyheads.launchers.launcher import Launcher
from manyheads.runner.config.lookup import CONF, options, read_option, unavailable
from manyheads.runner.option.declared import declared
from manyheads.runner.run.heartbeat import Heartbeat
from manyheads.runner.run.run_folder import RunFolder
from tests import in_process, zygote
from tests.conftest import RUN
from tests.in_process import config
from tests.needs import require

PROJECT = CONF.parent


def starts_here(launcher: str) -> bool:
    """Whether it starts processes on this machine; others ask an engine that the tests of their own start."""
    section = read_option("launcher", launcher)
    is_restarted = declared("launcher", section).restarts_ranks  # of which its own tests
    is_foreign = "started_by" in section
    return not (is_restarted or is_foreign) and ("nodes" not in section or "rendezvous" in section)


LAUNCHERS = [name for name in options("launcher") if name != "inline" and starts_here(name)]


def strategies() -> list[str]:
    """Those of several ranks that the launcher spawn starts; Horovod's need one that knows it."""
    known = {name: declared("parallel", read_option("parallel", name)) for name in options("parallel")}
    several = [name for name, option in known.items() if not option.one_process and name != "horovod"]
    return [name for name in several if unavailable("parallel", name) is None]


def usable(strategy: str) -> str:
    """This strategy, or ddp if it needs a newer torch."""
    return strategy if strategy in strategies() else "ddp"


def by(launcher: str) -> tuple[str, str]:
    """Overrides for ranks started by this launcher, with the strategy that it is made for."""
    return f"parallel={'horovod' if starts_horovod(launcher) else 'ddp'}", f"launcher={launcher}"


def starts_horovod(launcher: str) -> bool:
    """Whether Horovod's own ranks can be started by this launcher."""
    return declared("launcher", read_option("launcher", launcher)).horovod_controller is not None


def freeze(path: Path, *overrides: str) -> RunFolder:
    """A run folder that holds the frozen config of these overrides, with one thread per rank.

    With the same number everywhere ranks are forked from the same warm process, which takes seconds to start.
    """
    folder = RunFolder(path)
    folder.write_config(config("launcher.threads_per_rank=1", *overrides))
    return folder


def rows(path: Path) -> list[dict[str, str]]:
    """A table's rows without what a clock or the system measured."""
    return in_process.rows(path, without=in_process.TIMINGS)


@pytest.fixture(autouse=True)
def _own_classes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ranks find the classes of tests/launchers/faulty.py."""
    here = str(Path(__file__).parent)
    monkeypatch.syspath_prepend(here)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([here, os.environ["PYTHONPATH"]]))


@contextmanager
def mounted(folder: Path, size: str) -> Iterator[Path]:
    """A file system in memory of this size, such as 1m, over a folder. The test is skipped where none can be made."""
    require("mount")
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder)], check=True)
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A folder on a disk that is soon full."""
    folder = tmp_path / "disk"
    folder.mkdir()
    with mounted(folder, "1m"):
        yield folder


class Parent:
    """A real `python run.py` in the background, whose ranks can be found and signalled."""

    def __init__(
        self,
        folder: Path,
        *overrides: str,
        output: Path,
        command: tuple[str, ...] = (str(RUN),),
        under: tuple[str, ...] = (),
        cold: bool = False,
    ):
        """``output``: a new file for what it prints. ``under``: a program that starts it, with its arguments.

        ``cold``: in a new Python, as in tests.conftest.execute.
        """
        self.folder, self._output = RunFolder(folder), output
        arguments = (*under, sys.executable, *command, *overrides)
        # In a session of its own, as a terminal would have it: signals go where they are sent.
        self.process: zygote.Forked | subprocess.Popen[bytes]
        if not cold and zygote.runs(arguments):
            self.process = zygote.Forked(arguments, cwd=PROJECT, out=output, err=output, start_new_session=True)
        else:
            with open(output, "wb") as file:
                self.process = subprocess.Popen(
                    arguments, cwd=PROJECT, stdout=file, stderr=file, start_new_session=True
                )

    def text(self) -> str:
        """What it has printed so far."""
        return self._output.read_text(errors="replace")

    def wait_for_step(self, step: int) -> None:
        """Return when the run has written a row for this step."""
        self.wait_until(
            lambda: self.folder.steps.exists() and any(int(r["step"]) >= step for r in rows(self.folder.steps))
        )

    def wait_until(self, condition: Callable[[], bool], seconds: float = 180) -> None:
        deadline = time.monotonic() + seconds
        while not condition():
            assert self.process.poll() is None, self.text()
            assert time.monotonic() < deadline, "the run did not get there"
            time.sleep(0.05)

    def ranks(self) -> list[psutil.Process]:
        return [p for p in descendants(self.process.pid) if is_rank(p, self.folder)]

    def end(self, seconds: float = 30) -> tuple[int, str]:
        """The exit code and all output."""
        return self.process.wait(seconds), self.text()


def descendants(pid: int) -> list[psutil.Process]:
    try:
        return psutil.Process(pid).children(recursive=True)
    except psutil.NoSuchProcess:
        return []


def is_rank(process: psutil.Process, folder: RunFolder) -> bool:
    try:
        return any("manyheads: rank" in part and str(folder.path) in part for part in process.cmdline())
    except psutil.NoSuchProcess:
        return False


def survivors(folder: RunFolder) -> list[psutil.Process]:
    """Processes of this run that are still there, wherever they hang in the tree."""
    return [p for p in psutil.process_iter() if is_rank(p, folder)]


@pytest.fixture
def parent(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., Parent]]:
    """Starts parents, and ends what a failed test leaves."""
    started: list[Parent] = []
    outputs = tmp_path_factory.mktemp("outputs")

    def start(folder: Path, *overrides: str, **options: Any) -> Parent:
        started.append(Parent(folder, *overrides, output=outputs / f"{len(started)}.txt", **options))
        return started[-1]

    yield start
    for one in started:
        left = [*descendants(one.process.pid), *survivors(one.folder)]
        if one.process.poll() is None:
            one.process.kill()
        for process in left:
            if process.is_running():
                process.send_signal(signal.SIGKILL)
        one.process.wait(timeout=10)


@pytest.fixture
def job(tmp_path):
    folder = RunFolder(tmp_path / "run")
    folder.logs.mkdir(parents=True)

    def with_ranks(ranks: int) -> Job:
        heartbeat = Heartbeat.create(folder.heartbeat, ranks=ranks)
        return Job(folder, ranks, {"OMP_NUM_THREADS": "3", "PYTHONPATH": "/code"}, heartbeat, [])

    return with_ranks


@pytest.fixture
def started(job, monkeypatch):
    """The command line and the environment with which a launcher would start its agent."""

    def start(launcher: Launcher) -> tuple[list[str], dict[str, str]]:
        found = []
        homes = (sys.modules[kind.__module__] for kind in type(launcher).__mro__)
        module = next(home for home in homes if hasattr(home, "run_agent"))
        monkeypatch.setattr(
            module, "run_agent", lambda command, job, **options: found.append((command, options["environment"]))
        )
        launcher.launch(job(launcher.ranks))
        return found[0]

    return start
