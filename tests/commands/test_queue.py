"""``manyheads queue``: the order, who runs what, and why a run waits; how other commands show runs in the queue."""

import json

import pytest

from manyheads.launchers.companions.room.claims import Claim, boot_id
from manyheads.launchers.companions.room.registry import Registry
from manyheads.launchers.flags.queue.entries import QUEUE, RunQueue
from manyheads.runner.commands.work import Worked, WorkedRun
from manyheads.runner.run.run_folder import RunFolder
from tests.conftest import COMMANDS


@pytest.fixture
def runs(tmp_path, monkeypatch):
    """In the queue: a run on core 0, by process 11; one that waits for both cores, by process 12; one for a worker."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MANYHEADS_LEASES", str(tmp_path / "leases"))
    runs = [RunFolder(f"outputs/{name}") for name in "abc"]
    since = 1_700_000_000.0
    with RunQueue.created() as queue, Registry.created() as registry:
        with queue.turn():
            for run in runs:
                run.write_config({"launcher": {"devices": "free"}})
                queue.add(run)
        leases = []
        for run, pid, count, devices in ((runs[0], 11, 1, ("0",)), (runs[1], 12, 2, ())):
            with registry.turn() as claims:
                claim = Claim(str(run.path), pid, since, boot_id(), "core", count, ("0", "1"), devices)
                leases.append(registry.add(claim, claims))
        yield runs
        for lease in leases:
            lease.end()


def test_without_a_queue(tmp_path, command):
    assert command("queue").out == "the queue is empty\n"
    assert not (tmp_path / QUEUE).exists()
    assert command("work", "--until-empty").out == "no run waits in the queue\n"
    assert command("work", "--until-empty", "--json").code == 0


@pytest.mark.parametrize(("statuses", "code"), [(["completed", "interrupted"], 0), (["failed", "completed"], 1)])
def test_the_exit_code_of_a_worker_says_whether_a_run_failed(statuses, code):
    assert Worked([WorkedRun(f"outputs/{number}", status) for number, status in enumerate(statuses)]).exit_code == code


def test_who_runs_what_and_why_a_run_waits(runs, command):
    listed = json.loads(command("queue", "--json").out)["result"]["runs"]
    assert [(run["folder"], run["position"], run["pid"], run["devices"]) for run in listed] == [
        ("outputs/a", None, 11, ["0"]),
        ("outputs/b", 1, 12, []),
        ("outputs/c", 2, None, []),
    ]
    running, wide, last = (run["reason"] for run in listed)
    assert running.startswith("runs on core 0, process 11, since 2023-11-1")
    assert wide.startswith("waiting for cores 0-1; 1st in the queue; core 0: ")
    assert last == "behind outputs/b"


def test_as_people_read_it(runs, command):
    _, *lines = command("queue", "--first", "outputs/c").out.splitlines()
    assert [line.split()[:2] for line in lines] == [["1", "outputs/c"], ["outputs/a", "runs"], ["2", "outputs/b"]]
    assert "waits for a worker" in lines[0]


def test_a_run_that_is_not_in_the_queue(runs, command):
    assert (
        f"outputs/d is not in the queue; `{COMMANDS} queue` lists what is."
        in command("queue", "--cancel", "outputs/d").err
    )
    assert command("queue", "--cancel", "outputs/c").code == 0
    assert "outputs/c is not in the queue" in command("queue", "--first", "outputs/c").err
    assert command("queue", "--add", "outputs/c").code == 0


def test_how_other_commands_show_a_queued_run(runs, command):
    assert "queued" in command("show", "outputs/c").out
    assert "outputs/c stays: it is in the queue" in command("clean", "--older", "0h", "--yes").out
    assert json.loads(command("list", "status=queued", "--json").out)["result"]["found"] == 3
