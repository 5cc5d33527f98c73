"""Starts that count, and runs that are stopped: alone, beside others, by each limit."""

import signal
import threading
import time
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest

from manyheads.launchers import companions
from manyheads.launchers.companions import Accompanied
from manyheads.launchers.companions.budget import accompany_program, devices_of
from manyheads.launchers.companions.budget.limits import NAMED, budget_file
from manyheads.launchers.companions.budget.spending import SpendingLedger
from manyheads.launchers.companions.budget.watching import counted
from manyheads.runner.errors import BudgetSpent, ConfigurationError, Interrupted
from tests.launchers.companions.budget.conftest import session, spent, stub, until


def counting(path: Path, run: Accompanied, *, devices: int = 1):
    return counted(path, run.folder.path, kind="core", devices=devices, run=run)


def total(path: Path) -> float:
    return sum(line.device_seconds for line in SpendingLedger(path).sessions())


def refused(folder: Path) -> str:
    with pytest.raises(BudgetSpent) as reason:
        companions.refuse_start(folder)
    return str(reason.value)


def test_a_run_is_stopped_once_its_device_seconds_are_spent(budget, tmp_path):
    path, run = budget("device_seconds: 1.5\nruns: 3"), stub(tmp_path / "run")
    with counting(path, run, devices=3):
        until(lambda: run.reasons)
        assert run.signals == [signal.SIGTERM]
    with pytest.raises(BudgetSpent) as reason:
        run.outcome(Interrupted(signal.SIGTERM))
    message = str(reason.value)
    assert total(path) >= 1.5
    assert message.startswith(f"{path}: device_seconds: 1.")
    assert message.endswith(" of 1.5 are spent, so the run has stopped. Left: 2 runs. Set it higher to go on.")
    assert "Nothing was started. Left: 2 runs. Set it higher" in refused(tmp_path / "next")


def test_a_run_that_had_completed_when_it_was_stopped_has_completed(tmp_path):
    run = stub(tmp_path / "run")
    with pytest.raises(RuntimeError):
        run.outcome(RuntimeError())
    run.stop(BudgetSpent("spent"))
    run.folder.completed = lambda: {"status": "completed"}
    assert run.outcome(Interrupted(signal.SIGTERM)) == {"status": "completed"}
    with pytest.raises(RuntimeError):
        run.outcome(RuntimeError())


def test_runs_that_share_a_budget_together_stop_at_its_limit(budget, tmp_path):
    path = budget("device_seconds: 3")
    runs = [stub(tmp_path / str(number)) for number in range(3)]
    with ExitStack() as stack:
        for run in runs:
            stack.enter_context(counting(path, run, devices=2))
        for run in runs:
            until(lambda run=run: run.reasons)
    assert 2.5 < total(path) < 6  # alone, each would have stopped at 3


def test_a_run_that_started_later_counts_for_earlier_ones(budget, tmp_path):
    path, first, second = budget("device_seconds: 6"), stub(tmp_path / "first"), stub(tmp_path / "second")
    with counting(path, first), counting(path, second, devices=20):
        until(lambda: first.reasons and second.reasons)
    assert SpendingLedger(path).sessions()[0].seconds < 4  # alone, it would have had 6


def test_a_run_that_examines_something_ends_at_once(budget, tmp_path):
    run = stub(tmp_path / "run", trains=False)
    with counting(budget("device_seconds: 0.1"), run):
        until(lambda: run.reasons)
    assert run.signals == [signal.SIGTERM] * 2
    assert "has ended without a result" in str(run.reasons[0])


def test_as_many_runs_start_as_there_may_be(budget, tmp_path):
    path = budget("runs: 3")
    ended, started, outcomes = threading.Event(), [], []

    def start(number: int) -> None:
        try:
            with counting(path, stub(tmp_path / str(number))):
                started.append(number)
                ended.wait(20)
        except BudgetSpent as reason:
            outcomes.append(str(reason))

    threads = [threading.Thread(target=partial(start, number)) for number in range(8)]
    for thread in threads:
        thread.start()
    until(lambda: len(started) + len(outcomes) == 8)
    ended.set()
    for thread in threads:
        thread.join()
    assert (len(started), len(outcomes)) == (3, 5)
    assert all("runs: 3 of 3 are spent. Nothing was started." in message for message in outcomes)
    companions.refuse_start(tmp_path / str(started[0]))  # it counts already, and may be resumed
    with counting(path, stub(tmp_path / str(started[0]))):
        pass


def test_until(budget, tmp_path):
    budget("until: 2020-01-01 12:00")
    assert "until=2020-01-01 12:00 is over. Nothing was started." in refused(tmp_path / "run")
    moment, run = time.time() + 0.5, stub(tmp_path / "run")
    with counting(budget(f"until: {time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(moment))}.9+00:00"), run):
        until(lambda: run.reasons)
    assert time.time() > int(moment) + 0.9


def test_disk(budget, tmp_path):
    path, folder = budget("disk: 3kB"), tmp_path / "outputs" / "run"
    folder.mkdir(parents=True)
    (folder / "file").write_bytes(bytes(2000))
    spent(path, session(folder), session(tmp_path / "removed"))
    run = stub(tmp_path / "outputs" / "second")
    run.folder.path.mkdir()
    with counting(path, run):
        assert not run.reasons
        (run.folder.path / "checkpoint").write_bytes(bytes(1500))
        until(lambda: run.reasons)
    assert "disk: 3.5 kB of 3.0 kB are spent" in str(run.reasons[0])
    assert "disk: 3.5 kB of 3.0 kB are spent" in refused(tmp_path / "third")
    (folder / "file").unlink()
    companions.refuse_start(tmp_path / "third")


def test_a_limit_that_is_changed_meanwhile_counts(budget, tmp_path, capsys):
    path, run = budget("device_seconds: 4"), stub(tmp_path / "run")
    with counting(path, run, devices=4):
        budget("device_seconds: 5000")
        until(lambda: total(path) > 6)
        assert not run.reasons
        budget("device_seconds: none")
        until(lambda: total(path) > 8)
        assert not run.reasons
        budget("device_seconds: 5")
        until(lambda: run.reasons)
    assert capsys.readouterr().err.count("device_seconds: none is not allowed") == 1


def test_without_a_budget_nothing_is_written(tmp_path, monkeypatch):
    monkeypatch.setenv(NAMED, "")
    monkeypatch.chdir(tmp_path)
    with accompany_program(tmp_path / "program"):
        pass
    assert [*tmp_path.iterdir()] == []


def test_a_program_counts_for_all_devices_and_manyheads_in_it_does_not(budget, tmp_path):
    path = budget("runs: 1")
    with accompany_program(tmp_path / "program"):
        assert budget_file(tmp_path) is None
        assert refused_by(path, tmp_path)
    (line,) = SpendingLedger(path).sessions()
    assert line.devices >= 1


def refused_by(path: Path, folder: Path) -> bool:
    with pytest.raises(BudgetSpent), counting(path, stub(folder / "another")):
        pass
    return True


def test_a_budget_that_cannot_be_read_refuses_the_start(budget, tmp_path):
    budget("run: 5")
    with pytest.raises(ConfigurationError, match="unknown key run"):
        companions.refuse_start(tmp_path / "run")


@pytest.mark.parametrize(
    ("on_gpus", "gpus_here", "ranks", "threads", "devices"),
    [(False, 0, 3, 4, 12), (True, 2, 2, 8, 2), (True, 4, 1, 8, 4), (True, 0, 16, 8, 16)],
)
def test_devices(on_gpus, gpus_here, ranks, threads, devices):
    launcher = SimpleNamespace(ranks=ranks, threads_per_rank=threads)
    assert devices_of(SimpleNamespace(on_gpus=on_gpus, gpus_here=gpus_here, launcher=launcher)) == devices
