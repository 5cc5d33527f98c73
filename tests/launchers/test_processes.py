"""What the parent makes of what its ranks left."""

import json
import os
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from manyheads.launchers import processes
from manyheads.launchers.causes import first_failure
from manyheads.launchers.job import Job
from manyheads.launchers.processes import gone_silently, started_here
from manyheads.runner.errors import Failure, Kind
from manyheads.runner.run import heartbeat as heartbeats
from manyheads.runner.run.heartbeat import FAILED, FINISHED, Heartbeat
from manyheads.runner.run.run_folder import RunFolder

WENT = Failure(rank=0, exit_code=1, type="ConnectionError", message="peer closed", traceback="Traceback 0")
BEGAN = Failure(rank=1, exit_code=1, type="OSError", message="disk full", traceback="Traceback 1")


@pytest.fixture
def job(tmp_path: Path) -> Job:
    """Two ranks that have both reported a failure; rank 1's was the first."""
    folder = RunFolder(tmp_path)
    folder.logs.mkdir()
    heartbeat = Heartbeat.create(folder.heartbeat, ranks=2)
    for failure in (BEGAN, WENT):
        said(folder, failure).leave(FAILED)
    return Job(folder, 2, {}, heartbeat, [])


def said(folder: RunFolder, failure: Failure) -> Heartbeat:
    """The heartbeat of the rank that reported this failure."""
    heartbeat = Heartbeat(folder.heartbeat, rank=failure.rank)
    heartbeat.report(failure)
    return heartbeat


def test_the_earliest_failure_began_it(job):
    assert first_failure(job, {0: 1, 1: 1}, silent=[]) == BEGAN


def test_a_lost_peer_has_another_cause(job):
    """Gloo closed the connection of the rank that had timed out, and its peer was the first to say so."""
    closed = replace(BEGAN, kind=Kind.LOST_PEER, message="[pair.cc:561] Connection closed by peer [10.77.0.1]:11188.")
    said(job.folder, closed)
    said(job.folder, WENT)
    assert first_failure(job, {0: 1, 1: 1}, silent=[]) == WENT
    job.heartbeat.forget(0)
    assert first_failure(job, {1: 1}, silent=[]) == closed


def test_a_rank_that_died_silently_comes_before_those_that_reported(job):
    job.heartbeat.forget(0)
    failure = first_failure(job, {0: -9, 1: 1}, silent=[0])
    assert (failure.rank, failure.exit_code, failure.type) == (0, -9, "ProcessDied")


@pytest.mark.parametrize(
    ("code", "how"),
    [
        (-9, "was killed by SIGKILL (the kernel does that when memory runs out)"),
        (-7, "was killed by SIGBUS (the kernel does that when a file mapped into memory has no room: is the disk"),
        (-6, "was killed by SIGABRT"),
        (3, "ended with exit code 3 in the middle of the run"),
    ],
)
def test_how_a_rank_died(job, code, how):
    job.heartbeat.forget(0)
    assert first_failure(job, {0: code, 1: 1}, silent=[0]).message.startswith(f"its process {how}")


@pytest.mark.parametrize("content", [b"torn {", b"[]", b"null", json.dumps({"rank": 1, "time": 10.0}).encode()])
def test_a_report_that_cannot_be_read_does_not_hide_the_others(job, content, monkeypatch):
    monkeypatch.setattr(heartbeats, "_fitting", lambda report: content)
    said(job.folder, BEGAN)
    assert first_failure(job, {0: 1, 1: 1}, silent=[]) == WENT


def test_a_failure_without_a_report_is_still_one(job):
    job.heartbeat.forget(0)
    Heartbeat(job.folder.heartbeat, rank=0).leave(FINISHED)
    job.heartbeat.forget(1)
    failure = first_failure(job, {1: 7}, silent=[])
    assert (failure.rank, failure.exit_code, failure.type) == (1, 7, "ProcessDied")


@pytest.mark.parametrize("time", [None, "noon"])
def test_a_report_without_its_time_comes_last(job, time):
    job = replace(job, reports=lambda: [*job.heartbeat.reports()[:1], {**BEGAN.to_json(), "time": time}])
    assert first_failure(job, {0: 1, 1: 1}, silent=[]) == WENT


def test_no_failure(job):
    for rank in range(2):
        job.heartbeat.forget(rank)
        Heartbeat(job.folder.heartbeat, rank=rank).leave(FINISHED)
    assert first_failure(job, {0: 0, 1: 0}, silent=[]) is None


def test_a_rank_that_finishes_while_it_is_looked_for_has_not_gone_silently(tmp_path, monkeypatch):
    heartbeat = Heartbeat.create(tmp_path / "heartbeat", ranks=1)
    heartbeat.enter()

    def existing(pids):
        heartbeat.leave(FINISHED)
        return [False for _ in pids]

    monkeypatch.setattr(processes, "existing", existing)
    assert gone_silently({}, Job(RunFolder(tmp_path), 1, {}, heartbeat, [])) == []


def test_only_processes_of_the_run_are_ended():
    """A descendant, or a rank whose agent has ended before it; never another process whose id somebody wrote."""

    def left(**variables: str) -> int:
        words = ["sh", "-c", "sleep 60 >/dev/null & echo $!"]
        return int(subprocess.check_output(words, env={**os.environ, **variables}))

    child = subprocess.Popen(["sleep", "60"])
    pids = [child.pid, left(MANYHEADS_PARENT=str(os.getpid())), left(MANYHEADS_PARENT="1"), os.getpid(), 0, 2**22 + 1]
    try:
        assert started_here(pids) == pids[:2]
    finally:
        for pid in pids[:3]:
            os.kill(pid, 9)
        child.wait()
