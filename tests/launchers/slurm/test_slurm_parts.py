"""What is decided without a Slurm: what is asked for, the script, how states are read."""

import shlex
import subprocess
import sys

import pytest

from manyheads.launchers.slurm import slurm_commands
from manyheads.launchers.slurm.batch_script import write_script
from manyheads.launchers.slurm.following import ended_badly, note_job, standing
from manyheads.launchers.slurm.slurm_commands import Status, parsed
from manyheads.runner.config.fresh_folder import is_met_elsewhere
from manyheads.runner.config.lookup import unavailable
from manyheads.runner.errors import ConfigurationError, Interrupted, Kind, RunFailed, Unavailable
from manyheads.runner.machine import hardware
from manyheads.runner.option.run_config import RunConfig
from manyheads.runner.run.program import ProgramOutput
from manyheads.runner.run.run_folder import RunFolder
from tests.conftest import ROOT
from tests.in_process import completed_for_here as complete
from tests.in_process import composed, ranks

SHOWN = (
    "JobId=5 JobName=a UserId=root(0) JobState={} Reason={} Dependency=(null) Requeue=1 Restarts=3 NodeList={} "
    "Command=/x/y=z.sh\n"
)


@pytest.fixture(autouse=True)
def _outside(monkeypatch):
    for name in ("SLURM_JOB_ID", "SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST", "SLURMD_NODENAME", "SLURM_PROCID"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(slurm_commands, "missing", lambda: None)


def config(*overrides):
    from manyheads.runner.config.schema import check

    return check(composed("launcher=slurm", *overrides))


def decided(*overrides):
    done = complete(config(*overrides))
    launcher = done["launcher"]
    keys = ("nodes", "nproc_per_node", "cpus_per_node", "threads_per_rank")
    return done["trainer"]["device"], *(launcher[key] for key in keys), ranks(done), RunConfig.of(done).gpus_here


@pytest.mark.parametrize(
    ("overrides", "expected"),
    [
        ((), ("cpu", 1, 2, 2, 1, 2, 0)),
        (("launcher.nodes=4", "launcher.gpus_per_node=8"), ("cuda", 4, 8, 64, 8, 32, 0)),
        (("launcher.threads_per_rank=3", "launcher.nproc_per_node=2"), ("cpu", 1, 2, 6, 3, 2, 0)),
        (("launcher.cpus_per_node=12",), ("cpu", 1, 2, 12, "auto:6", 2, 0)),
        (("parallel=single", "launcher.gpus_per_node=1"), ("cuda", 1, 1, 8, 8, 1, 0)),
    ],
)
def test_auto_is_decided_for_the_nodes_that_are_asked_for(monkeypatch, overrides, expected):
    monkeypatch.setattr(hardware, "torch_cuda_version", lambda: "13.0")
    assert decided("parallel=ddp", "data.batch_size=64", *overrides) == expected


def test_gpus_for_a_torch_that_has_no_cuda_are_refused(monkeypatch):
    monkeypatch.setattr(hardware, "torch_cuda_version", lambda: None)
    with pytest.raises(Unavailable, match="gpus_per_node: the installed torch is a CPU build"):
        decided("parallel=ddp", "launcher.gpus_per_node=2")


def test_inside_an_allocation_its_nodes_are_taken(monkeypatch):
    found = {"SLURM_JOB_ID": "7", "SLURM_JOB_NODELIST": "n[1-3]", "SLURM_JOB_NUM_NODES": "3", "SLURMD_NODENAME": "n1"}
    for name, value in found.items():
        monkeypatch.setenv(name, value)
    assert decided("parallel=ddp", "data.batch_size=60", "launcher.nproc_per_node=1")[1] == 3
    with pytest.raises(ConfigurationError, match=r"launcher.nodes=4: this is Slurm job 7, which has 3"):
        decided("parallel=ddp", "launcher.nodes=4")


def test_in_salloc_it_is_for_the_allocations_nodes_although_it_is_typed_elsewhere(monkeypatch):
    found = {"SLURM_JOB_ID": "7", "SLURM_JOB_NODELIST": "n[1-3]", "SLURM_JOB_NUM_NODES": "3"}
    for name, value in {**found, "SLURM_JOB_CPUS_PER_NODE": "16(x2),12"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(slurm_commands, "gpus_per_node", lambda job: 2)
    monkeypatch.setattr(hardware, "torch_cuda_version", lambda: "13.0")
    assert decided("parallel=ddp", "data.batch_size=60") == ("cuda", 3, 2, 12, 6, 6, 0)
    assert decided("parallel=ddp", "data.batch_size=60", "trainer.device=cpu")[0] == "cpu"


def test_an_engine_that_is_away_is_asked_once_for_a_whole_list(monkeypatch, tmp_path):
    asked, answers = [], {}
    monkeypatch.setattr(slurm_commands, "status_now", lambda job, seconds: asked.append(job))
    for name in "12":
        folder = RunFolder(tmp_path / name)
        folder.path.mkdir()
        note_job(folder, name)
        assert standing(folder, answers) == ("interrupted", f"Slurm cannot be asked from here about job {name}")
    assert asked == ["1"]


def test_of_a_steps_tasks_only_the_first_is_the_run(monkeypatch):
    section = config()["launcher"]
    assert not is_met_elsewhere(section)
    monkeypatch.setenv("SLURM_PROCID", "1")
    assert is_met_elsewhere(section)


def test_without_sbatch_it_is_said_how_to_get_it(monkeypatch, tmp_path):
    monkeypatch.undo()
    monkeypatch.setenv("PATH", str(tmp_path))
    assert "slurm-client" in str(unavailable("launcher", "slurm"))


@pytest.mark.parametrize("override", ["launcher.partition='a b'", "launcher.time_limit=soon", "launcher.nodes=0"])
def test_values_that_no_option_of_sbatch_can_have(override):
    with pytest.raises(ConfigurationError, match=override.partition("=")[0]):
        config(override)


def script_of(folder, *overrides):
    launcher = complete(config("parallel=ddp", *overrides))["launcher"]
    return write_script(RunFolder(folder), launcher, name=None, pinned={"MANYHEADS_CHECKED": "x y"})


def test_the_script_asks_for_what_was_typed(tmp_path):
    text = script_of(
        tmp_path,
        *("launcher.nodes=2", "launcher.partition=gpu", "launcher.time_limit=4h", "launcher.stop_before=90"),
        *("launcher.constraint='a100|h100'", "launcher.lines=['#SBATCH --mem=0','module load cuda']"),
    )
    lines = text.splitlines()
    for wanted in ("--nodes=2", "--partition=gpu", "--time=240", "--signal=B:USR1@90", "--constraint=a100|h100"):
        assert f"#SBATCH {wanted}" in lines
    assert {"#SBATCH --requeue", "#SBATCH --mem=0", "module load cuda"} <= set(lines)
    assert not any("--gpus" in line or "--account" in line for line in lines)
    assert lines[-1] == f"exec {shlex.quote(sys.executable)} -m manyheads.runner resume {tmp_path}"
    assert subprocess.run(["bash", "-n"], input=text, text=True).returncode == 0


def test_a_template_that_asks_for_what_there_is_not(tmp_path):
    (tmp_path / "own.j2").write_text("{{ nothing }}")
    with pytest.raises(ConfigurationError, match=r"launcher.template=.*own.j2: 'nothing' is undefined"):
        script_of(tmp_path, f"launcher.template={tmp_path}/own.j2")
    with pytest.raises(ConfigurationError, match=r"launcher.template=.*none.j2: No such file"):
        script_of(tmp_path, f"launcher.template={tmp_path}/none.j2")


def sbatch(monkeypatch, *errors):
    """What it fails with, one after the other, before it takes the job."""
    waiting = iter(errors)

    def run(*command, **_):
        error = next(waiting, None)
        return ProgramOutput(int(error is not None), b"" if error else b"7\n", error or "")

    monkeypatch.setattr(slurm_commands, "_run", run)
    monkeypatch.setattr(slurm_commands, "AGAIN_SECONDS", 0)


UNREACHED = "sbatch: error: Batch job submission failed: Unable to contact slurm controller (connect failure)"


def test_a_submission_is_retried_until_a_controller_answers(monkeypatch, tmp_path, capsys):
    sbatch(monkeypatch, UNREACHED, UNREACHED)
    assert slurm_commands.submit("#!/bin/sh\n", tmp_path) == "7"
    assert capsys.readouterr().out.count("asking again for 15 minutes") == 1
    sbatch(monkeypatch, UNREACHED)
    with pytest.raises(Interrupted):
        slurm_commands.submit("#!/bin/sh\n", tmp_path, [2])


def test_a_submission_that_slurm_may_have_taken_is_not_repeated(monkeypatch, tmp_path):
    sbatch(monkeypatch, "sbatch: error: Batch job submission failed: Socket timed out on send/recv operation")
    with pytest.raises(RunFailed, match=r"may have the job: .*timed out.* See `squeue --me`"):
        slurm_commands.submit("#!/bin/sh\n", tmp_path)


@pytest.mark.parametrize(
    ("state", "reason", "nodes", "said"),
    [
        ("PENDING", "BeginTime", "(null)", "waits in the queue (BeginTime)"),
        ("RUNNING", "None", "n[1-2]", "runs on n[1-2]"),
        ("COMPLETING", "None", "n1", "is completing"),
        ("OUT_OF_MEMORY", "None", "n1", "is out of memory"),
    ],
)
def test_states_as_scontrol_shows_them(state, reason, nodes, said):
    found = parsed(SHOWN.format(state, reason, nodes))
    assert (str(found), found.restarts) == (said, 3)
    assert found.is_over == (state == "OUT_OF_MEMORY")


@pytest.mark.parametrize(
    ("state", "has_run", "kind", "said"),
    [
        ("CANCELLED", False, Kind.CANCELLED, "was cancelled before it started"),
        ("CANCELLED", True, Kind.CANCELLED, "was cancelled."),
        ("TIMEOUT", True, Kind.TIMED_OUT, "launcher.time_limit"),
        ("NODE_FAIL", True, Kind.NODE_LOST, "lost a node"),
        ("FAILED", False, Kind.NOT_STARTED, "before the run started: last words"),
        ("GONE", False, Kind.NOT_STARTED, "before the run started"),
    ],
)
def test_what_slurm_did_to_a_job_in_a_sentence(state, has_run, kind, said):
    failure = ended_badly("5", Status(state), "last words", has_run=has_run)
    assert failure.kind is kind
    assert said in failure.message


def test_a_run_that_ended_by_itself_says_why_itself():
    assert ended_badly("5", Status("FAILED"), "", has_run=True) is None


def test_the_template_is_part_of_what_is_installed():
    assert (ROOT / "launchers" / "slurm" / "batch.sh.j2").is_file()
