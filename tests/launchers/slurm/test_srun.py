"""A user's own srun, which starts the ranks: one run for each of its steps, and for each job that is queued again."""

import sys
from pathlib import Path

import pytest

from manyheads.launchers.launch import launch, prepare
from manyheads.runner.run.run_folder import RunFolder
from tests.conftest import RUN
from tests.launchers.conftest import freeze, rows
from tests.launchers.slurm.cluster import Slurm
from tests.launchers.slurm.test_requeued import SECONDS, requeue

pytestmark = [pytest.mark.ci, pytest.mark.processes]

SMALL = ("model=mlp", "model.width=8", "data.batch_size=48", "trainer.device=cpu", "launcher.threads_per_rank=1")
SHORT, LONG = (*SMALL, "trainer.max_steps=20"), (*SMALL, "trainer.epochs=60", "trainer.log_every=5")


def script(folder: Path, *lines: str) -> str:
    """A batch script that runs these lines on two nodes, each with a task. Both are this host, and have no address."""
    path, options = folder / "job.sh", "--nodes=2 --ntasks=2 --requeue --output=job.log --open-mode=append"
    path.write_text("\n".join(["#!/bin/sh", f"#SBATCH {options}", "export MASTER_ADDR=127.0.0.1", *lines, ""]))
    return str(path)


def typed(*words: str) -> str:
    return " ".join([sys.executable, str(RUN), *words])


def test_a_step_is_one_run_and_the_batch_shell_no_rank(
    cluster: Slurm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    usual = freeze(tmp_path / "usual", *SHORT, "parallel=ddp", "launcher=spawn", "launcher.nproc_per_node=2")
    weights = launch(prepare(usual))["weights_sha256"]
    alone = typed(*SHORT, "hydra.run.dir=alone")
    cluster.client("sbatch", "--wait", script(tmp_path, alone, f"srun {typed(*SHORT)}"))
    output = (tmp_path / "job.log").read_text()
    assert (RunFolder("alone").read_result() or {})["world_size"] == 1, output
    [folder] = (tmp_path / "outputs").iterdir()
    assert folder.name.startswith("slurm-")
    result = RunFolder(folder).read_result() or {}
    assert (result["status"], result["world_size"], result["weights_sha256"]) == ("completed", 2, weights), output


@pytest.mark.tail
@pytest.mark.timeout(900)
def test_a_job_that_is_queued_again_resumes_its_run(
    cluster: Slurm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    cluster.client("sbatch", script(tmp_path, f"srun --kill-on-bad-exit=1 {typed(*LONG)}"))
    [job] = cluster.jobs()
    folder = RunFolder(tmp_path / f"outputs/slurm-{job}.0")
    cluster.wait(lambda: folder.steps.exists() and len(rows(folder.steps)) > 100, "the run does not train", 120)
    requeue(cluster, job)
    cluster.wait(lambda: not cluster.jobs(), "the job does not end", SECONDS)
    output = (tmp_path / "job.log").read_text()
    result = folder.read_result() or {}
    assert result["status"] == "completed", output
    assert "resuming from step" in output
    assert [path.name for path in (tmp_path / "outputs").iterdir()] == [folder.path.name]
    steps = [int(row["step"]) for row in rows(folder.steps)]
    assert steps == sorted(set(steps))
