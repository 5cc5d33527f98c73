"""A judgement that is killed again and again ends with the verdict of its rounds, and leaves nothing."""

import json
import os
import random
import signal
import subprocess
import time

import psutil
import pytest

from manyheads.runner.answers.judge.recorded import faults
from manyheads.runner.run.ledger import JUDGED as NAME
from tests.answers.judge.test_judge import BASE, COMMAND, SLOW, judge

pytestmark = [pytest.mark.processes, pytest.mark.slow, pytest.mark.tail]
ON_METRIC = (*BASE, "trainer.epochs=1", "--on", "val_loss", "--least", "1000", "--budget", "9m")


def killed(words, cwd, chance):
    """Start the command, and kill it, or ask it to stop, after some more rows of its ledger."""
    process = subprocess.Popen([*COMMAND, *words], cwd=cwd, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    ledger, until = cwd / "judged" / NAME, time.monotonic() + 100
    before = ledger.read_text().count("\n") if ledger.exists() else 0
    more = chance.randrange(1, 12)
    while process.poll() is None and time.monotonic() < until:
        if ledger.exists() and ledger.read_text().count("\n") >= before + more:
            break
        time.sleep(0.02)
    process.send_signal(chance.choice([signal.SIGKILL, signal.SIGINT, signal.SIGTERM]))
    process.wait()


def left(cwd):
    """Processes that were started in the folder, this one's aside."""
    found = []
    for each in psutil.process_iter(["pid", "cmdline"]):
        words = " ".join(each.info["cmdline"] or ())
        if str(cwd) in words and each.pid != os.getpid():
            found.append(words)
    return found


@pytest.mark.parametrize(
    "asked", [(*BASE, SLOW, "--change", "model.pause=0", "--budget", "9m"), (*ON_METRIC, "--change", "optimizer.lr=1")]
)
def test_it_continues_with_the_same_rounds(tmp_path, asked):
    chance = random.Random(sum(map(ord, asked[-1])))
    for _ in range(3):
        killed(asked, tmp_path, chance)
    done = judge(*asked, cwd=tmp_path)
    assert done.code in (0, 3), done.out + done.err
    content = json.loads((tmp_path / "judged" / "judgement.json").read_text())
    assert faults(content) == []
    rows = [line["content"] for line in content["lines"][1:]]
    ended = {row["number"] for row in rows if row["state"] != "started"}
    assert content["claims"]["interrupted"] == len({row["number"] for row in rows} - ended)
    again = judge(*asked, cwd=tmp_path)
    assert (again.code, json.loads((tmp_path / "judged" / "judgement.json").read_text())) == (done.code, content)
    until = time.monotonic() + 30
    while (still := left(tmp_path)) and time.monotonic() < until:
        time.sleep(0.2)
    assert still == []
    assert not list((tmp_path / "judged").rglob("steps/*.pt"))
