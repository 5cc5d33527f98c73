"""Jobs that Slurm takes away and queues again: the run ends with the weights of an undisturbed one.

A job that is queued again waits two minutes, whatever is configured.
"""

import pytest

from tests.launchers.conftest import rows, survivors
from tests.launchers.slurm.conftest import LONG, resumed

SECONDS = 500
pytestmark = [pytest.mark.processes, pytest.mark.tail, pytest.mark.timeout(900)]


def requeue(cluster, job):
    cluster.client("scontrol", "requeue", job)


def preempt(cluster, job):
    """By a job that wants both nodes for itself, and ends at once."""
    cluster.client("sbatch", "--partition=urgent", "--nodes=2", "--exclusive", "--output=/dev/null", "--wrap=sleep 2")


def lose_node(cluster, job):
    cluster.client("scontrol", "update", "nodename=n2", "state=down", "reason=test")
    cluster.wait(lambda: restarts(cluster, job) == 1, "the job was not queued again")
    cluster.client("scontrol", "update", "nodename=n2", "state=resume")


def restarts(cluster, job):
    return int(cluster.client("scontrol", "show", "job", "-o", job).partition("Restarts=")[2].split()[0])


@pytest.mark.parametrize("disturb", [requeue, preempt, lose_node])
def test_a_run_that_is_queued_again_ends_as_if_nothing_had_been(cluster, submit, undisturbed, disturb):
    run = submit("run", *LONG)
    run.wait_until(lambda: run.folder.steps.exists() and len(rows(run.folder.steps)) > 30, 120)
    (job,) = cluster.jobs()
    disturb(cluster, job)
    run.wait_until(lambda: "PENDING" in cluster.client("squeue", "-h", "-o", "%T", "-j", job), 60)
    assert f"job {job} waits in the queue" in (done := resumed(run.folder.path)).stderr, done
    code, text = run.end(SECONDS)
    assert code == 0, text
    result = run.folder.read_result()
    assert result["slurm"] == {"job": job, "restarts": 1}
    assert result["weights_sha256"] == undisturbed
    assert cluster.jobs() == []
    assert not survivors(run.folder)


def test_before_its_time_limit_a_run_stops_and_is_queued_again_by_itself(cluster, submit, tmp_path):
    endless = ("launcher.nproc_per_node=1", "trainer.epochs=4000", "trainer.log_every=2")
    run = submit("run", "launcher.nodes=2", *endless, "launcher.time_limit=2m", "launcher.stop_before=30")
    log = run.folder.logs / "slurm.log"
    run.wait_until(lambda: log.exists() and "is requeued and will resume" in log.read_text(), 200)
    stopped = run.folder.read_result()
    assert stopped["status"] == "interrupted"
    run.wait_until(lambda: last_step(run.folder) > stopped["steps"], 250)  # it goes on by itself
    (job,) = cluster.jobs()
    cluster.client("scancel", job)
    code, text = run.end(60)
    assert code == 1
    assert f"Slurm job {job} was cancelled." in text
    assert run.folder.read_result()["error"]["type"] == "Cancelled"
    assert not survivors(run.folder)
    steps = [int(row["step"]) for row in rows(run.folder.steps)]
    assert steps == sorted(set(steps))


def last_step(folder):
    return int(rows(folder.steps)[-1]["step"])
