"""What stands in for ranks that are not started: runs only beside ranks, and ends in any case."""

import errno
import os
import shutil
import signal
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from manyheads.runner.errors import RunFailed
from tests import cpu_quota
from tests.benchmarks.scaling.fillers import Fillers, fillers
from tests.benchmarks.scaling.test_cpu_quota import quota_or_skip
from tests.cpu_quota import enter
from tests.in_process import typed


@pytest.fixture
def spinning() -> Iterator[list[psutil.Process]]:
    """Three processes that compute all the time, each in the group of a filler."""
    with quota_or_skip(0.1):
        children = []
        for number in range(3):
            if (child := os.fork()) == 0:
                enter(-1 - number)
                (cpu_quota.group(f"filler{number}") / "cgroup.procs").write_text("0")
                while True:
                    pass
            children.append(psutil.Process(child))
        try:
            yield children
        finally:
            for each in children:
                each.kill()
                os.waitpid(each.pid, 0)


def state(processes: list[psutil.Process], wanted: list[str]) -> None:
    until = time.monotonic() + 10
    while [("stopped" if each.status() == psutil.STATUS_STOPPED else "runs") for each in processes] != wanted:
        assert time.monotonic() < until, [each.status() for each in processes]
        time.sleep(0.01)


def test_they_run_beside_ranks_once_these_have_entered_their_quotas(spinning: list[psutil.Process]) -> None:
    groups = [cpu_quota.group(f"filler{number}") for number in range(3)]
    until = time.monotonic() + 10
    while not all((group / "cgroup.procs").read_text() for group in groups):
        assert time.monotonic() < until
    found = Fillers(groups)
    found.pause()
    state(spinning, ["stopped"] * 3)
    with found.beside(2):
        ranks = [_rank(number) for number in range(2)]
        state(spinning, ["runs", "runs", "stopped"])
    state(spinning, ["stopped"] * 3)
    found.end()
    for each in ranks:
        os.kill(each, signal.SIGKILL)
        os.waitpid(each, 0)


def _rank(number: int) -> int:
    if (child := os.fork()) == 0:
        enter(number)
        signal.pause()
    return child


class Gone:
    """A control group that has been removed. ``asked``: set once that has been noticed."""

    def __init__(self) -> None:
        self.asked = threading.Event()

    def __truediv__(self, name: str) -> Path:
        self.asked.set()
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), name)


def test_an_error_beside_the_ranks_is_raised_when_these_have_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    gone = Gone()
    monkeypatch.setattr(cpu_quota, "group", lambda name: gone)
    with pytest.raises(RunFailed, match="could not be continued: .*cgroup.procs"), Fillers([]).beside(1):
        assert gone.asked.wait(10)


def test_one_that_does_not_begin_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", shutil.which("false"))
    alone = typed("parallel=single", "data=digits", "trainer.device=cpu")
    with quota_or_skip(0.5), pytest.raises(RunFailed, match="did not start: .* exit code 1"), fillers(alone, 1):
        raise AssertionError


def test_none_is_left_if_one_cannot_be_started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\nexec sleep 600\n")
    python.chmod(0o700)
    monkeypatch.setattr(sys, "executable", str(python))
    pinned = []

    def pin(rank: int, process: int) -> None:
        pinned.append(psutil.Process(process))
        if len(pinned) == 2:
            raise KeyboardInterrupt

    monkeypatch.setattr(cpu_quota, "pin", pin)
    alone = typed("parallel=single", "data=digits", "trainer.device=cpu")
    with quota_or_skip(0.3), pytest.raises(KeyboardInterrupt), fillers(alone, 3):
        raise AssertionError
    assert [each.is_running() for each in pinned] == [False, False]


def test_its_error_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\necho no such module >&2\nexit 1\n")
    python.chmod(0o700)
    monkeypatch.setattr(sys, "executable", str(python))
    alone = typed("parallel=single", "data=digits", "trainer.device=cpu")
    with quota_or_skip(0.5), pytest.raises(RunFailed, match="did not start: no such module"), fillers(alone, 1):
        raise AssertionError


@pytest.mark.tail
@pytest.mark.processes
def test_what_a_run_recorded_is_said(tmp_path: Path) -> None:
    alone = typed("parallel=single", "data=digits", "trainer.device=cpu", "parameters.freeze=[nowhere]")
    with quota_or_skip(0.5), pytest.raises(RunFailed, match="did not start: .*nowhere"), fillers(alone, 1):
        raise AssertionError
