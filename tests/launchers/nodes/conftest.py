"""Runs on a cluster of network namespaces: real parents, agents, torchrun, ranks and links."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from manyheads.runner.run.run_folder import RunFolder
from tests.launchers.conftest import PROJECT, rows
from tests.launchers.nodes.cluster import Cluster, started

COMMON = ("launcher.threads_per_rank=1", "data.batch_size=48", "model.width=8", "trainer.device=cpu")
ENDLESS = ("trainer.epochs=1000", "trainer.log_every=2", "trainer.evaluate_every=0")


class Run:
    """A real ``python run.py`` on a node, with its output in a file."""

    def __init__(self, cluster: Cluster, folder: Path, *overrides: str, node: int = 1, command: tuple[str, ...] = ()):
        self.cluster, self.folder = cluster, RunFolder(folder)
        # Beside the run's folder's disk, which may fail.
        self.output = cluster.folder / f"{folder.name}.{node}.{time.monotonic_ns()}.txt"
        shell = f"launcher.remote_shell='{cluster.shell} {{host}}'"
        self.parent = "resume" if command else "run.py"  # a word of its command line
        given = command or ("run.py", *COMMON, shell, f"hydra.run.dir={folder}", *overrides)
        with open(self.output, "wb") as file:
            self.process = subprocess.Popen(
                cluster.on(node, sys.executable, *given),
                cwd=PROJECT,
                stdout=file,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def text(self) -> str:
        return self.output.read_text(errors="replace")

    def wait_for_step(self, step: int, seconds: float = 150) -> None:
        self.wait_until(lambda: self.last_step() >= step, seconds)

    def wait_for_more(self, seconds: float = 120) -> None:
        """Return when another row is there, or the run has ended."""
        reached, deadline = self.last_step(), time.monotonic() + seconds
        while self.last_step() <= reached and self.process.poll() is None:
            assert time.monotonic() < deadline, self.text()
            time.sleep(0.05)

    def last_step(self) -> int:
        return (
            max((int(row["step"]) for row in rows(self.folder.steps)), default=0) if self.folder.steps.exists() else 0
        )

    def wait_until(self, condition: Callable[[], bool], seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while not condition():
            assert self.process.poll() is None, self.text()
            assert time.monotonic() < deadline, self.text()
            time.sleep(0.05)

    def find(self, node: int, text: str) -> psutil.Process:
        """The first process on a node whose command line holds this text, not what has led there."""
        for process in self.cluster.processes(node):
            words = process.cmdline()
            if words and words[0] not in ("unshare", "sh") and any(text in part for part in words):
                return process
        raise AssertionError(f"there is no {text} on node {node}")

    def end(self, seconds: float = 150) -> int:
        """The exit code."""
        return self.process.wait(seconds)

    def close(self) -> None:
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()


def gone(cluster: Cluster, *nodes: int, seconds: float = 20) -> None:
    """Asserts that within so many seconds nothing runs on these nodes any more."""
    deadline = time.monotonic() + seconds
    while left := cluster.processes(*nodes):
        assert time.monotonic() < deadline, [process.cmdline() for process in left]
        time.sleep(0.1)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Two nodes, for all tests of a module."""
    with started(tmp_path_factory.mktemp("cluster"), 2) as made:
        yield made


@pytest.fixture
def run_on(cluster: Cluster, tmp_path: Path) -> Iterator[Callable[..., Run]]:
    """Starts runs on the cluster, and ends what a failed test leaves."""
    with runs(cluster, tmp_path) as start:
        yield start


@contextmanager
def runs(cluster: Cluster, folder: Path) -> Iterator[Callable[..., Run]]:
    begun: list[Run] = []

    def start(name: str, *overrides: str, **options: object) -> Run:
        begun.append(Run(cluster, folder / name, *overrides, **options))  # type: ignore[arg-type]
        return begun[-1]

    try:
        yield start
    finally:
        for one in begun:
            one.close()
        cluster.kill()
        for node in cluster.nodes:
            cluster.mend(node)
