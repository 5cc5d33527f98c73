"""A judgement of commands that is killed at random moments ends with the verdict of its rounds, and leaves nothing."""

import json
import os
import random
import subprocess
import time

import psutil
import pytest

from manyheads.runner.answers.judge.recorded import faults
from manyheads.runner.run.ledger import JUDGED
from tests.answers.judge.test_judge import COMMAND

pytestmark = [pytest.mark.processes, pytest.mark.slow, pytest.mark.tail, pytest.mark.timeout(1200)]
KILLS = 50


def test_it_is_killed_again_and_again(project, tmp_path):
    project.gain(50)
    before, chance = project.state(), random.Random(1)
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    line = 'echo "$MANYHEADS_SEED" > used; setsid sleep 977 & sh train.sh; sleep 0.1'
    asked = ["--command", line, "--code", "HEAD", "--on", "loss", "--budget", "9m", "hydra.sweep.dir=outputs/judged"]
    environment = {**os.environ, "TMPDIR": str(temporary)}
    ledger = project.folder / "outputs" / "judged" / JUDGED
    for _ in range(KILLS):
        process = subprocess.Popen(
            [*COMMAND, *asked], env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        size, until = ledger.stat().st_size if ledger.exists() else 0, time.monotonic() + 60
        while process.poll() is None and time.monotonic() < until:
            if ledger.exists() and ledger.stat().st_size > size:
                break
            time.sleep(0.01)
        time.sleep(chance.uniform(0, 1))
        process.kill()
        process.wait()
    done = subprocess.run([*COMMAND, *asked], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    content = json.loads((project.folder / "outputs" / "judged" / "judgement.json").read_text())
    assert faults(content) == []
    rows = [line["content"] for line in content["lines"][1:]]
    ended = {row["number"] for row in rows if row["state"] != "started"}
    assert content["claims"]["interrupted"] == len({row["number"] for row in rows} - ended) > 0
    assert project.state() == before
    assert [*temporary.iterdir()] == []
    until = time.monotonic() + 20
    while left := [each for each in psutil.process_iter(["cmdline"]) if each.info["cmdline"] == ["sleep", "977"]]:
        assert time.monotonic() < until, left
