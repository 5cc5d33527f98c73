"""A GAN, and a teacher that follows, in mixed precision, killed with SIGKILL and resumed by real processes."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest

from manyheads.runner.run.run_folder import RunFolder
from tests.conftest import execute
from tests.loop.own_step.configs import BYOL, GAN

pytestmark = [pytest.mark.processes, pytest.mark.ci]
FP16 = ("precision=amp", "precision.dtype=float16", "precision.init_scale=65536", "precision.growth_interval=3")
LONG = ("trainer.epochs=60", "checkpoint.every=5", "trainer.log_every=1", "seed=3")
MODULE = (sys.executable, "-m", "manyheads.runner")
SECONDS = 300


@pytest.mark.parametrize(
    ("task", "precision"), [(GAN, FP16), (BYOL, ("precision=bf16",)), (BYOL, FP16)], ids=["gan", "bf16", "fp16"]
)
def test_a_killed_run_is_resumed_to_the_bit(tmp_path, task, precision):
    command = (*MODULE, "train", *task, *LONG, *precision)
    whole = execute(*command, "hydra.run.dir=whole", cwd=tmp_path)
    assert whole.code == 0, whole.out + whole.err
    folder, steps = RunFolder(tmp_path / "killed"), 0
    with subprocess.Popen([*command, "hydra.run.dir=killed"], cwd=tmp_path, start_new_session=True) as process:
        deadline = time.monotonic() + SECONDS
        while steps < 30 and process.poll() is None and time.monotonic() < deadline:
            steps = len(folder.steps.read_text().splitlines()) - 1 if folder.steps.exists() else 0
            time.sleep(0.005)
        os.killpg(process.pid, signal.SIGKILL)
    assert 30 <= steps < 240
    resumed = execute(*MODULE, "resume", "killed", cwd=tmp_path)
    assert resumed.code == 0, resumed.out + resumed.err
    assert "resuming from step" in resumed.out
    shas = {
        name: json.loads((tmp_path / name / "result.json").read_text())["weights_sha256"]
        for name in ("whole", "killed")
    }
    assert shas["whole"] == shas["killed"]
