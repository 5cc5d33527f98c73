"""``train --queue``: what it freezes, what it refuses, and that a failure leaves nothing."""

import errno
import json
import os
import subprocess
import sys

import pytest

from manyheads.launchers.flags.queue import entries
from manyheads.launchers.flags.queue.entries import QUEUE
from manyheads.runner.records.run_summary import summary
from manyheads.runner.run.run_folder import RunFolder
from tests.conftest import COMMANDS, FAST
from tests.launchers.flags.queue.conftest import in_queue
from tests.optional_wings import require_wing


def test_the_frozen_run_is_queued_on_free_devices(desk, run_here):
    done = run_here("--queue", *FAST, "hydra.run.dir=outputs/b")
    assert f"outputs/b is in the queue. Workers run it: {COMMANDS} work" in done.out
    done = run_here("--queue", *FAST, "hydra.run.dir=outputs/a", "--json")
    assert "outputs/a is in the queue, behind 1 other." in done.err
    result = json.loads(done.out)["result"]
    run = RunFolder(desk / "outputs/a")
    assert (done.code, result["folder"], result["status"]) == (0, str(run.path), "queued")
    assert run.read_config()["launcher"]["devices"] == "free"
    assert run.is_own()
    assert run.provenance.exists()
    assert summary(run).status == "queued"
    assert in_queue() == ["b", "a"]


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["-m", "seed=1,2"], "--queue is for single runs"),
        (["--cfg", "job"], "--cfg starts no run"),
        pytest.param(
            ["launcher=slurm"],
            "launcher=slurm: what starts its ranks also finds room for them",
            marks=pytest.mark.needs("slurm"),
        ),
        (["launcher=ray"], "launcher=ray: "),
        (["launcher.devices=any"], "launcher.devices=any: --queue takes free devices"),
        (["launcher.devices=free", "launcher.wait=10m"], "launcher.wait=10m: with --queue"),
        (["optimizer.lr=-1"], "optimizer.lr=-1 is not allowed"),
    ],
)
def test_what_cannot_be_queued_is_refused_and_leaves_nothing(words, says, desk, run_here):
    done = run_here("--queue", *FAST, *words)
    assert done.code == 2
    assert says in done.err or "not installed" in done.err
    assert not (desk / "outputs").exists()


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EROFS])
@pytest.mark.parametrize("step", ["write_whole", "mark"])
def test_a_disk_that_cannot_be_written_leaves_nothing_and_is_named(number, step, desk, run_here, monkeypatch):
    def refuse(*_: object) -> None:
        raise OSError(number, os.strerror(number), str(QUEUE / "500000000.json"))

    monkeypatch.setattr(entries, step, refuse)
    done = run_here("--queue", *FAST, "hydra.run.dir=outputs/a")
    assert done.code == 1
    assert f"500000000.json: {os.strerror(number)}" in done.err
    assert [path.name for path in (desk / "outputs").iterdir()] == [".queue"]
    assert [*QUEUE.iterdir()] == []


def test_two_flags_are_refused(desk, run_here):
    require_wing("manyheads.launchers.flags.once")
    assert "--once and --queue cannot be combined" in run_here("--queue", "--once").err


def test_torch_is_not_imported(desk):
    code = (
        "import sys; from manyheads.runner.app import main; main(['train', '--queue', 'hydra.run.dir=outputs/a']); "
        "main(['queue']); main(['queue', '--cancel', 'outputs/a']); print('torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "False"
