"""Runs submitted to a real Slurm: followed, refused, cancelled, held, and never started."""

import json
import signal
import subprocess
import sys
import threading

import pytest

from manyheads.launchers.launch import launch, prepare
from manyheads.launchers.slurm.following import noted_job
from manyheads.runner.commands.clean.removable import Rules, find_removable
from manyheads.runner.commands.show.show_run import run_page
from manyheads.runner.config.lookup import CONF
from manyheads.runner.errors import ConfigurationError, RunFailed
from manyheads.runner.option.run_config import RunConfig
from manyheads.runner.provenance.node_records import inventory
from manyheads.runner.provenance.provenance import record
from manyheads.runner.records.run_summary import summaries
from manyheads.runner.run.ledger import Ledger
from manyheads.runner.run.run_folder import RunFolder
from tests.launchers.conftest import PROJECT, freeze, rows, survivors
from tests.launchers.slurm.conftest import COMMON, HELD
from tests.tail import tail

pytestmark = pytest.mark.ci

PROJECT_TEMPLATE = CONF.parent / "launchers" / "slurm" / "batch.sh.j2"


def in_background(call):
    thread = threading.Thread(target=call, daemon=True)
    thread.start()
    return thread


@pytest.mark.processes
def test_a_run_on_two_nodes_is_that_of_as_many_ranks_on_one_machine(cluster, submit, tmp_path):
    run = submit("there", "launcher.nodes=2", "launcher.nproc_per_node=1", "trainer.max_steps=6", "trainer.log_every=2")
    here = freeze(tmp_path / "here", *COMMON, "launcher=spawn", "trainer.max_steps=6", "trainer.log_every=2")
    launch(prepare(here))
    code, text = run.end(120)
    assert code == 0, text
    assert "runs on n[1-2]" in text
    assert "completed" in text  # what rank 0 said there
    there, expected = run.folder.read_result(), here.read_result()
    assert there["weights_sha256"] == expected["weights_sha256"]
    assert rows(run.folder.steps) == rows(here.steps)
    assert [each["ranks"] for each in there["nodes"]] == [1, 1]
    provenance = json.loads(run.folder.provenance.read_text())
    assert [each["node"] for each in provenance["nodes"]] == ["n1", "n2"]
    assert all(each.items() >= inventory().items() for each in provenance["nodes"])  # both are this machine
    assert there["slurm"] == {"job": noted_job(run.folder), "restarts": 0}
    assert cluster.jobs() == []
    assert not survivors(run.folder)


@pytest.mark.tail
@pytest.mark.processes
def test_inside_salloc_a_run_takes_the_nodes_of_the_allocation(cluster, tmp_path):
    options = (*COMMON, "launcher.nproc_per_node=1", "trainer.max_steps=6", f"hydra.run.dir={tmp_path}/run")
    command = ["salloc", "--nodes=2", "--cpus-per-task=3", "--gpus-per-node=1", sys.executable, "run.py", *options]
    done = subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert "submitted" not in done.stdout
    folder = RunFolder(tmp_path / "run")
    result, launcher = folder.read_result(), folder.read_config()["launcher"]
    assert [each["ranks"] for each in result["nodes"]] == [1, 1]
    assert f"job allocation {result['slurm']['job']}" in done.stderr
    assert (launcher["nodes"], launcher["cpus_per_node"], launcher["threads_per_rank"]) == (2, 3, 3)
    provenance = json.loads(folder.provenance.read_text())
    assert [each["node"] for each in provenance["nodes"]] == ["n1", "n2"]
    cluster.wait(lambda: not cluster.jobs(), "the allocation stays")  # it is completing when salloc returns
    assert not survivors(folder)


@pytest.mark.tail
@pytest.mark.processes
def test_the_gpus_that_slurm_assigns_are_those_that_a_rank_sees(cluster, parent, tmp_path):
    """The first of each node's two is taken by another job."""
    other = ("--nodes=2", "--gpus-per-node=1", "--output=/dev/null", "--wrap=sleep 600")
    held = cluster.client("sbatch", "--parsable", *other)
    cluster.wait(lambda: "RUNNING" in cluster.client("squeue", "-h", "-o", "%T", "-j", held), "no job")
    spy = ("model=custom", "model._target_=spy.Spy", f"+model.report={tmp_path}/seen.json")
    options = (*(each for each in COMMON if "width" not in each), "launcher.nodes=2", *spy)
    asked = ("launcher.gpus_per_node=1", "launcher.cpus_per_node=4", "trainer.max_steps=2")
    run = parent(tmp_path / "run", *options, *asked, f"hydra.run.dir={tmp_path}/run")
    code, text = run.end(120)
    assert code == 0, text
    seen = json.loads((tmp_path / "seen.json").read_text())["environment"]
    assert (seen["CUDA_VISIBLE_DEVICES"], seen["SLURM_STEP_GPUS"], seen["SLURMD_NODENAME"]) == ("1", "1", "n1")
    assert "#SBATCH --gpus-per-node=1" in (run.folder.path / "slurm.sh").read_text()


def test_of_an_allocation_it_is_known_what_its_nodes_have(cluster, tmp_path):
    command = "from manyheads.launchers.slurm.allocation import Allocation; print(Allocation.here().offered())"
    asked = ["salloc", "--nodes=2", "--ntasks=2", "--cpus-per-task=3", "--gres=gpu:1", sys.executable, "-c", command]
    assert cluster.client(*asked) == "(3, 1)"


def test_what_slurm_refuses_is_said_in_its_own_words(cluster, tmp_path):
    folder = freeze(tmp_path / "run", *COMMON, "launcher.partition=nowhere")
    with pytest.raises(ConfigurationError, match="nowhere"):
        launch(prepare(folder))
    assert "nowhere" in folder.read_result()["error"]["message"]
    assert cluster.jobs() == []


def test_a_job_that_is_cancelled_while_it_waits_says_so(cluster, tmp_path):
    folder = freeze(tmp_path / "run", *COMMON, HELD)
    in_background(lambda: (cluster.wait(lambda: cluster.jobs(), "no job"), cluster.client("scancel", *cluster.jobs())))
    with pytest.raises(RunFailed, match=r"Slurm job \d+ was cancelled before it started"):
        launch(prepare(folder))
    result = folder.read_result()
    assert (result["status"], result["error"]["type"], result["steps"]) == ("failed", "Cancelled", 0)
    assert result["slurm"]["job"] == noted_job(folder)


def test_a_run_that_is_left_in_the_queue_is_not_submitted_twice(cluster, tmp_path, capfd):
    folder = freeze(tmp_path / "run", *COMMON, HELD, "launcher.follow=false")
    assert launch(prepare(folder))["status"] == "queued"
    job = noted_job(folder)
    assert cluster.jobs() == [job]
    assert f"submitted as Slurm job {job}" in capfd.readouterr().out
    with pytest.raises(ConfigurationError, match=rf"is already in the queue: job {job} waits in the queue"):
        launch(prepare(folder))
    assert cluster.jobs() == [job]


def test_of_a_job_that_nobody_followed_slurm_is_asked(cluster, tmp_path, capfd):
    folder = freeze(tmp_path / "run", *COMMON, HELD, "launcher.follow=false")
    record(folder, RunConfig.of(folder.read_config()))
    launch(prepare(folder))
    job = noted_job(folder)
    (run,) = summaries(tmp_path)
    assert (run.status, run.job) == ("queued", f"job {job} waits in the queue (JobHeldUser)")
    assert find_removable(tmp_path, Rules(hours=0))[1] == [f"{folder} stays: it is in the queue"]
    cluster.client("scancel", job)
    (run,) = summaries(tmp_path)
    assert (run.status, run.job) == ("failed", f"Slurm job {job} was cancelled before it started.")
    assert [each.path for each in find_removable(tmp_path, Rules(failed=True))[0]] == [folder.path]
    assert not folder.result.exists()
    capfd.readouterr()
    run_page(str(folder.path)).show()
    launch(prepare(folder))
    shown, again = capfd.readouterr().out.split("resume it:")
    assert f"job Slurm job {job} was cancelled before it started." in " ".join(shown.split())
    assert f"Slurm job {job} was cancelled before it started.\nsubmitted as Slurm job {noted_job(folder)}" in again
    assert noted_job(folder) != job


@pytest.mark.parametrize("signum", [signal.SIGINT, tail(signal.SIGTERM)])
def test_who_stops_waiting_leaves_nothing_in_the_queue(cluster, submit, signum):
    run = submit("run", HELD)
    run.wait_until(lambda: cluster.jobs() and "held" in cluster.client("squeue", "-h", "-o", "%r").lower())
    run.wait_until(lambda: noted_job(run.folder))
    run.process.send_signal(signum)
    code, text = run.end()
    assert code == 128 + signum, text
    assert cluster.jobs() == []
    assert run.folder.read_result()["status"] == "interrupted"


def test_a_script_that_ends_before_the_run_begins_is_said_with_its_last_line(cluster, tmp_path):
    template = tmp_path / "site.sh.j2"
    template.write_text("#!/bin/bash\n#SBATCH --output={{ output }}\necho no python on $SLURMD_NODENAME\nexit 1\n")
    folder = freeze(tmp_path / "run", *COMMON, f"launcher.template={template}")
    with pytest.raises(RunFailed, match="ended before the run started: no python on n1"):
        launch(prepare(folder))
    assert folder.read_result()["error"]["type"] == "NotStarted"


def test_a_folder_whose_name_has_spaces_and_more(cluster, tmp_path):
    path = tmp_path / "a \"b' $c %d"
    template = tmp_path / "site.sh.j2"
    text = (PROJECT_TEMPLATE.read_text()).replace("exec {{ command }}", "echo {{ command }}")
    template.write_text(text)
    folder = freeze(path, *COMMON, f"launcher.template={template}")
    with pytest.raises(RunFailed, match="ended before the run started"):
        launch(prepare(folder))
    assert (folder.logs / "slurm.log").read_text().split(" resume ")[1] == f"{folder.path}\n"


def test_jobs_of_a_sweep_wait_beside_each_other(cluster, parent, tmp_path):
    sweep = tmp_path / "sweep"
    run = parent(sweep, "-m", *COMMON, HELD, "seed=1,2", f"hydra.sweep.dir={sweep}", "hydra.launcher.jobs=2")
    run.wait_until(lambda: len(cluster.jobs()) == 2)
    run.wait_until(lambda: noted_job(RunFolder(sweep / "0")))
    cluster.client("scancel", noted_job(RunFolder(sweep / "0")))
    run.wait_until(lambda: states(sweep)[0] == "failed")
    run.process.send_signal(signal.SIGINT)
    code, text = run.end()
    assert code == 130, text
    assert cluster.jobs() == []
    first, second = Ledger(sweep).entries()
    assert (first.state, second.state) == ("failed", "interrupted")
    assert "was cancelled before it started" in first.reason


def states(sweep):
    return [entry.state for entry in Ledger(sweep).entries()]
