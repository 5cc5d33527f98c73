import os
import subprocess
import sys

import pytest

from manyheads.runner.errors import ConfigurationError, Failure
from manyheads.runner.run.heartbeat import FAILED, FINISHED, REPORT_BYTES, RUNNING, STARTING, Heartbeat, failures_of
from manyheads.runner.run.rank_info import RankInfo

FULL = Failure(rank=1, exit_code=1, type="OSError", message="disk full", traceback="Traceback 1")


@pytest.fixture
def path(tmp_path):
    return tmp_path / "logs" / "heartbeat"


def test_a_new_one_is_silent(path):
    heartbeat = Heartbeat.create(path, ranks=3)
    assert heartbeat.ranks == 3
    assert heartbeat.beats() == 0
    assert heartbeat.stop_signal == 0
    assert [heartbeat.state(rank) for rank in range(3)] == [STARTING] * 3
    assert [heartbeat.pid(rank) for rank in range(3)] == [0] * 3


def test_ranks_do_not_touch_each_other(path):
    parent = Heartbeat.create(path, ranks=3)
    ranks = [Heartbeat(path, rank=rank) for rank in range(3)]
    for rank, beats in enumerate((1, 2, 4)):
        for _ in range(beats):
            ranks[rank].beat()
    ranks[0].leave(FINISHED)
    ranks[1].leave(FAILED)
    ranks[2].enter()
    assert parent.beats() == 7
    assert [parent.state(rank) for rank in range(3)] == [FINISHED, FAILED, RUNNING]
    assert [parent.pid(rank) for rank in range(3)] == [0, 0, os.getpid()]


def test_the_request_to_stop_reaches_all(path):
    parent = Heartbeat.create(path, ranks=2)
    ranks = [Heartbeat(path, rank=rank) for rank in range(2)]
    parent.stop_signal = 15
    assert [rank.stop_signal for rank in ranks] == [15, 15]
    ranks[1].stop_signal = 2
    assert parent.stop_signal == 2
    assert parent.beats() == 0


def test_creating_again_forgets_the_attempt_before(path):
    before = Heartbeat.create(path, ranks=2)
    before.beat()
    before.stop_signal = 15
    again = Heartbeat.create(path, ranks=1)
    assert (again.ranks, again.beats(), again.stop_signal) == (1, 0, 0)
    before.beat()  # a rank that was left over writes to the old file
    assert again.beats() == 0


def test_another_process_is_seen(path):
    parent = Heartbeat.create(path, ranks=2)
    code = "import sys; from pathlib import Path; from manyheads.runner.run.heartbeat import Heartbeat"
    code += "; h = Heartbeat(Path(sys.argv[1]), rank=1)"
    code += "; h.enter(); h.beat(); h.beat(); assert h.stop_signal == 2; h.leave(2)"
    parent.stop_signal = 2
    child = subprocess.Popen([sys.executable, "-c", code, str(path)])
    assert child.wait(timeout=30) == 0
    assert parent.beats() == 2
    assert parent.pid(1) == child.pid
    assert parent.state(1) == FINISHED


def test_a_failure_is_reported_through_it(path):
    parent = Heartbeat.create(path, ranks=3)
    assert parent.reports() == []
    Heartbeat(path, rank=1).report(FULL)
    later = Failure(rank=0, type="ConnectionError", message="peer closed")
    Heartbeat(path, rank=0).report(later)
    assert failures_of(parent.reports()) == [FULL, later]
    parent.forget(1)
    assert failures_of(parent.reports()) == [later]
    assert [parent.state(rank) for rank in range(3)] == [STARTING] * 3


def test_the_first_failure_of_a_rank_counts(path):
    parent, rank = Heartbeat.create(path, ranks=1), Heartbeat(path, rank=0)
    rank.fail(ArithmeticError("made to fail"))
    rank.fail(OSError("while it was ending"))
    assert [each.message for each in failures_of(parent.reports())] == ["made to fail"]
    assert parent.state(0) == FAILED


def test_of_a_long_failure_the_end_of_its_traceback_is_kept(path):
    parent, rank = Heartbeat.create(path, ranks=2), Heartbeat(path, rank=0)
    rank.report(Failure(rank=0, type="E", message="m", traceback="ä" * REPORT_BYTES + "the end"))
    found = failures_of(parent.reports())[0]
    assert found.traceback.endswith("ä" * 500 + "the end")
    rank.report(Failure(rank=0, type="E", message="m" * REPORT_BYTES, traceback="t"))
    assert failures_of(parent.reports())[0].message.startswith("m" * 1000)
    assert not any(parent.read(1))


@pytest.mark.parametrize("long", [{"value": "v" * REPORT_BYTES}, {"allowed": ("a" * 99,) * 99}])
def test_of_a_mistake_about_much_the_key_and_the_message_are_kept(path, long):
    parent, rank = Heartbeat.create(path, ranks=1), Heartbeat(path, rank=0)
    rank.fail(ConfigurationError("too long", key="model.name", **long))
    (found,) = failures_of(parent.reports())
    assert (found.key, found.value, found.allowed, found.message) == ("model.name", None, (), "too long")


def test_the_earliest_failure_comes_first_and_one_without_a_time_last():
    reports = [{**FULL.to_json(), "rank": rank, "time": time} for rank, time in enumerate((None, 2.0, 1.0, "noon"))]
    assert [failure.rank for failure in failures_of(reports)] == [2, 1, 0, 3]
    assert failures_of([{"rank": 1, "time": 10.0}]) == []


def test_nobody_else_may_write_process_ids_into_it(tmp_path):
    """Whatever the umask; and the parent reads what it created, not what has taken its name."""
    before = os.umask(0)
    try:
        heartbeat = Heartbeat.create(tmp_path / "logs" / "heartbeat", ranks=1)
    finally:
        os.umask(before)
    assert (tmp_path / "logs" / "heartbeat").stat().st_mode & 0o777 == 0o600
    Heartbeat(tmp_path / "logs" / "heartbeat").enter()
    assert heartbeat.pid(0) == os.getpid()
    other = Heartbeat.create(tmp_path / "other", ranks=1)
    os.replace(tmp_path / "other", tmp_path / "logs" / "heartbeat")
    other.enter()
    other.beat()
    assert heartbeat.beats() == 0


def test_a_rank_uses_no_other_file_than_the_parents(path, monkeypatch):
    """Somebody who can write to the run folder could put another one in its place, by which he would steer ranks."""
    parent = Heartbeat.create(path, ranks=1)
    for name, value in parent.variables.items():
        monkeypatch.setenv(name, value)
    Heartbeat.of_rank(RankInfo(0, 0, 1), path).beat()
    assert parent.beats() == 1
    path.parent.rename(path.parent.with_name("gone"))
    path.parent.mkdir()
    path.write_bytes(bytes(9000))
    with pytest.raises(ConfigurationError, match="was replaced"):
        Heartbeat.of_rank(RankInfo(0, 0, 1), path)
    assert "was replaced" in str(parent.unreachable())
