"""Nodes that die with all that runs on them, and a controller that does not answer."""

import signal
import threading

import pytest

from manyheads.launchers.launch import launch, prepare
from manyheads.launchers.slurm import slurm_commands
from tests.launchers.conftest import freeze, rows, survivors
from tests.launchers.slurm.conftest import COMMON, HELD, LONG

pytestmark = [pytest.mark.processes, pytest.mark.tail, pytest.mark.timeout(900)]


def restarts(cluster, job):
    return int(cluster.client("scontrol", "show", "job", "-o", job).partition("Restarts=")[2].split()[0])


@pytest.mark.parametrize("node", ["n1", "n2"])  # n1 runs the batch script, and so the run's parent
def test_when_a_node_dies_the_job_is_queued_again_and_completes(cluster, submit, undisturbed, node):
    run = submit("run", *LONG, "checkpoint.every=20")
    run.wait_until(lambda: run.folder.steps.exists() and len(rows(run.folder.steps)) > 40, 120)
    (job,) = cluster.jobs()
    cluster.kill_node(node)
    run.wait_until(lambda: restarts(cluster, job) == 1, 150)
    cluster.start_node(node)
    code, text = run.end(500)
    assert code == 0, text
    result = run.folder.read_result()
    assert result["slurm"] == {"job": job, "restarts": 1}
    assert result["weights_sha256"] == undisturbed
    assert f"job {job} waits in the queue" in text
    assert cluster.jobs() == []
    assert not survivors(run.folder)


def test_a_controller_that_is_away_is_waited_for_while_the_job_trains_on(cluster, submit, undisturbed):
    run = submit("run", *LONG)
    try:
        run.wait_until(lambda: run.folder.steps.exists() and len(rows(run.folder.steps)) > 30, 120)
        cluster.stop_controller()
        before = len(rows(run.folder.steps))
        run.wait_until(lambda: len(rows(run.folder.steps)) > before + 50)
        run.wait_until(lambda: run.folder.result.exists(), 120)  # the job itself needs no controller
        assert [slurm_commands.status_now("1"), slurm_commands.status_now("1")] == [
            None,
            None,
        ]  # meanwhile the run has asked too
    finally:
        cluster.start_controller()
    code, text = run.end(120)
    assert code == 0, text
    assert "Slurm's controller does not answer; asking again for 15 minutes: the job continues without it" in text
    assert run.folder.read_result()["weights_sha256"] == undisturbed
    cluster.wait(lambda: not cluster.jobs(), "the job stays")
    assert not survivors(run.folder)


def test_without_its_controller_a_job_cannot_be_cancelled_and_this_is_said(cluster, submit):
    run = submit("run", HELD)
    try:
        run.wait_until(lambda: cluster.jobs())
        (job,) = cluster.jobs()
        run.wait_until(lambda: (run.folder.path / "slurm.json").exists())
        cluster.stop_controller()
        run.process.send_signal(signal.SIGINT)
        run.process.send_signal(signal.SIGTERM)
        code, text = run.end(60)
    finally:
        cluster.start_controller()
    assert code == 1
    assert f"job {job} is not cancelled. Use `scancel {job}`" in text
    cluster.wait(lambda: cluster.jobs() == [job], "the job is unknown")


def test_a_job_is_submitted_once_the_controller_answers(cluster, tmp_path, monkeypatch, capfd):
    monkeypatch.setattr(slurm_commands, "AGAIN_SECONDS", 0.5)
    folder = freeze(tmp_path / "run", *COMMON, HELD, "launcher.follow=false")
    cluster.stop_controller()
    said = threading.Timer(15, cluster.start_controller)
    said.start()
    try:
        assert launch(prepare(folder))["status"] == "queued"
    finally:
        said.join()
    assert "Slurm's controller does not answer; asking again" in capfd.readouterr().out
    assert len(cluster.jobs()) == 1


def test_a_controller_that_stays_away_at_submission(cluster, tmp_path, monkeypatch):
    monkeypatch.setattr(slurm_commands, "AWAY_SECONDS", 1.0)
    monkeypatch.setattr(slurm_commands, "AGAIN_SECONDS", 0.5)
    folder = freeze(tmp_path / "run", *COMMON)
    cluster.stop_controller()
    try:
        with pytest.raises(Exception, match=r"Slurm's controller does not answer: .*[Uu]nable to contact"):
            launch(prepare(folder))
    finally:
        cluster.start_controller()
    assert folder.read_result()["error"]["type"] == "Unreachable"
