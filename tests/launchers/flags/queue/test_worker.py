"""A worker: what it takes, what it leaves to others, and what it records; its runs are small programs."""

import signal
import sys
from pathlib import Path

import pytest

from manyheads.launchers.companions.room.claims import Claim, boot_id
from manyheads.launchers.companions.room.registry import Registry
from manyheads.launchers.flags.queue import worker as worker_module
from manyheads.launchers.flags.queue.entries import RunQueue, mark, status_of
from manyheads.launchers.flags.queue.worker import Worker
from manyheads.runner.commands.queue import cancel
from manyheads.runner.errors import BudgetSpent, ConfigurationError, ExitCode, Interrupted, WaitExpired
from manyheads.runner.run.run_folder import RunFolder
from tests.launchers.flags.queue.conftest import in_queue, queued

HEAD = "import json, os, signal, sys, time; from pathlib import Path; run = Path(sys.argv[1]); "
COMPLETE = HEAD + """(run / "result.json").write_text(json.dumps({"status": "completed", "wall_seconds": 1.0}))"""


def work(monkeypatch, program: str, signals: list[int] | None = None) -> Worker:
    monkeypatch.setattr(Worker, "program", (sys.executable, "-c", program))
    with RunQueue.created() as queue:
        worker = Worker(queue, signals if signals is not None else [])
        worker.work(until_empty=True)
        return worker


def claimed(run: RunFolder, devices: tuple[str, ...]) -> None:
    """Another process of this test's user has made a claim for a run, and holds it until the test ends."""
    with Registry.created() as registry, registry.turn() as claims:
        registry.add(Claim(str(run.path), 1, 0.0, boot_id(), "core", 1, ("0", "1"), devices), claims)


def test_one_after_the_other_and_each_once(desk, monkeypatch, capsys):
    worker = work(monkeypatch, COMPLETE) if queued("a", "b") else None
    assert worker is not None
    assert [(run.path.name, status) for run, status in worker.ended] == [("a", "completed"), ("b", "completed")]
    assert in_queue() == []
    assert capsys.readouterr().out.splitlines()[-1] == "outputs/b: completed"


def test_a_run_whose_process_dies_has_failed_and_is_not_tried_again(desk, monkeypatch):
    (run,) = queued("a")
    work(monkeypatch, HEAD + "os.kill(os.getpid(), 9)")
    result = run.read_result() or {}
    assert (result["status"], result["error"]["message"]) == (
        "failed",
        "the process of this run was killed by signal 9",
    )
    assert in_queue() == []


def test_a_run_that_somebody_else_stopped_leaves_the_queue(desk, monkeypatch):
    (run,) = queued("a")
    work(monkeypatch, HEAD + """(run / "result.json").write_text('{"status": "interrupted"}'); sys.exit(143)""")
    assert (status_of(run), in_queue()) == ("interrupted", [])


@pytest.mark.parametrize(
    ("error", "code", "why"),
    [
        (WaitExpired, ExitCode.EXPIRED, "its wait for devices has expired"),
        (BudgetSpent, ExitCode.SPENT, "a budget is spent"),
    ],
)
def test_a_run_that_may_not_begin_now_stays_and_ends_the_worker(desk, monkeypatch, error, code, why):
    (run,) = queued("a")
    with pytest.raises(error, match=f"^outputs/a stays in the queue: {why}") as ended:
        work(monkeypatch, f"raise SystemExit({int(code)})")
    assert ended.value.exit_code == code
    assert (status_of(run), in_queue()) == ("queued", ["a"])


def test_a_process_that_ends_with_any_other_code_has_failed(desk, monkeypatch):
    (run,) = queued("a")
    work(monkeypatch, "raise SystemExit(120)")  # Python's own, if its output is lost
    assert (status_of(run), in_queue()) == ("failed", [])


def test_what_refuses_every_start_fails_no_run(desk, monkeypatch, capsys):
    run, _ = queued("a", "b")

    def refuse_start(folder: Path) -> None:
        raise ConfigurationError(f"the budget of {folder.name} cannot be read.")

    monkeypatch.setattr(worker_module, "refuse_start", refuse_start)
    with pytest.raises(ConfigurationError, match="the budget of a cannot be read"):
        work(monkeypatch, COMPLETE)
    assert (status_of(run), in_queue()) == ("queued", ["a", "b"])
    assert "begins" not in capsys.readouterr().out
    with RunQueue.created() as queue, queue.turn():
        assert not any(entry.is_taken for entry in queue.entries())


def test_a_worker_without_work_says_so_once(desk, monkeypatch, capsys):
    signals: list[int] = []
    pauses = iter([None, None])

    def sleep(seconds: float) -> None:
        if next(pauses, signal) is signal:
            signals.append(signal.SIGTERM)

    monkeypatch.setattr(worker_module.time, "sleep", sleep)
    with pytest.raises(Interrupted), RunQueue.created() as queue:
        Worker(queue, signals).work(until_empty=False)
    assert capsys.readouterr().out == "no run waits in the queue: waiting for one\n"


def test_a_worker_that_is_told_to_stop_stops_its_run_which_stays(desk, monkeypatch):
    (run,) = queued("a")
    signals: list[int] = []
    monkeypatch.setattr(Worker, "_say", lambda worker, text: signals.append(signal.SIGTERM))  # once it has begun
    with pytest.raises(Interrupted):
        work(monkeypatch, HEAD + "time.sleep(100)", signals)
    assert (status_of(run), in_queue()) == ("queued", ["a"])


def test_a_run_that_is_cancelled_is_stopped(desk, monkeypatch):
    (run,) = queued("a")

    def cancelled(worker: Worker, text: str) -> None:
        if text.endswith("begins"):
            with RunQueue.created() as queue, queue.turn():
                cancel(queue, run)

    monkeypatch.setattr(Worker, "_say", cancelled)
    work(monkeypatch, HEAD + "time.sleep(100)")
    assert (status_of(run), in_queue()) == ("interrupted", [])


def test_what_is_no_longer_to_be_run_leaves_the_queue(desk, monkeypatch, capsys):
    edited, ended, removed = queued("edited", "ended", "removed")
    edited.config.write_text(edited.config.read_text() + "extra: 1\n")
    mark(ended, "failed")
    removed.config.unlink()
    assert work(monkeypatch, COMPLETE).ended == []
    assert (in_queue(), status_of(edited)) == ([], "queued")
    errors = capsys.readouterr().err
    assert "outputs/edited was queued, but its config is not the one that you froze" in errors
    assert "outputs/removed was queued, but holds no run any more" in errors


def test_a_run_with_processes_left_is_not_taken_and_the_next_one_is(desk, monkeypatch):
    left, _ = queued("left", "b")
    claimed(left, ("0",))
    with RunQueue.created() as queue:
        taken, is_empty = Worker(queue, [])._next()
    assert taken is not None
    assert (taken.entry.run.path.name, is_empty) == ("b", False)


def test_only_one_run_at_a_time_waits_for_devices(desk):
    first, _, _ = queued("first", "b", "c")
    with RunQueue.created() as queue:
        assert Worker(queue, [])._next()[0] is not None
        assert Worker(queue, [])._next() == (None, False)
        claimed(first, ())
        assert Worker(queue, [])._next() == (None, False)
        claimed(first, ("0",))
        taken, _ = Worker(queue, [])._next()
        assert taken is not None
        assert taken.entry.run.path.name == "b"
