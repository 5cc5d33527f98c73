"""The command typed on each machine: one is the run, the others take part in it, or are told why they can't."""

import csv
import time

import pytest

from manyheads.launchers.launch import launch, prepare
from manyheads.runner.run.run_folder import RunFolder
from tests.launchers.conftest import freeze, rows
from tests.launchers.nodes.conftest import COMMON, gone
from tests.tail import tail

PORT = 29400
RESTART_SECONDS = 15
MET = f"launcher.rendezvous=10.77.0.1:{PORT}"
DDP = ("parallel=ddp", "launcher=torchrun", "launcher.nproc_per_node=1", "precision=fp64", "trainer.log_every=1")


def first_step(folder: RunFolder, *, after: float) -> float:
    """The time of the first step after that time."""
    with open(folder.steps, newline="") as file:
        return min(time for row in csv.DictReader(file) if (time := float(row["time"])) > after)


def typed(run_on, *overrides: str, name: str = "run"):
    return lambda node: run_on(name, *DDP, MET, *overrides, node=node)


@pytest.mark.processes
@pytest.mark.timeout(300)
@pytest.mark.parametrize("other", [tail("optimizer.lr=0.3"), tail("")])
def test_another_config_or_key_is_refused(cluster, run_on, monkeypatch, tmp_path, other: str) -> None:
    """Neither a machine where something else was typed nor one of another user gets to know the run."""
    common = "launcher.nodes=2", "launcher.start_timeout=12"
    first = typed(run_on, *common)(1)
    if not other:
        monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "another user"))
    second = typed(run_on, *common, *([other] if other else []))(2)
    assert second.end(60) == (2 if other else 1), second.text()
    assert first.end(60) == 1
    if other:
        reason = "node2 (10.77.0.2) was given a different config from the run's parent: optimizer.lr"
        assert reason in second.text()
        assert reason in first.text()
    else:
        assert "no connection to the run's parent at 10.77.0.1" in second.text()
    assert "1 of 2 machines have connected to 10.77.0.1:29400" in first.text()
    gone(cluster, 1, 2, seconds=5)


@pytest.mark.processes
@pytest.mark.tail
@pytest.mark.timeout(600)
def test_a_machine_goes_and_comes_back(cluster, run_on, tmp_path) -> None:
    """2 machines, 1, 2: every sample of every epoch counts once, and the losses are those of an undisturbed run."""
    length = ("trainer.epochs=20", "checkpoint.every=20")
    alone = freeze(tmp_path / "alone", *COMMON, *length, "precision=fp64", "trainer.log_every=1")
    launch(prepare(alone))
    elastic = ("launcher.nodes=1:2", "launcher.max_restarts=1", "launcher.node_timeout=5")
    start = typed(run_on, *elastic, *length)
    began = time.time()
    first, second = start(1), start(2)
    first.wait_for_step(60)
    killed = time.time()
    cluster.kill(2)
    assert second.end(10)
    first.wait_for_step(first.last_step() + 30)
    came = time.time()
    third = start(2)
    assert first.end(200) == 0, first.text()
    assert third.end(20) == 0, third.text()
    result = first.folder.read_result()
    causes = [restart["cause"] for restart in result["restarts"]]
    assert "NodeLost" in causes[0]
    assert "node2" in causes[0]
    assert causes[1:] == ["more machines joined"]
    assert (result["status"], result["world_size"]) == ("completed", 2)
    start_seconds = first_step(first.folder, after=began) - began  # longer where others use the machine too
    for since, restart in zip((killed, came), result["restarts"], strict=True):
        seconds, whole = (first_step(first.folder, after=restart["time"]) - t for t in (restart["time"], since))
        print(
            f"{seconds:.1f} s from restart to first step, {whole:.1f} s since that came; {start_seconds:.1f} s at first"
        )
        assert seconds < max(RESTART_SECONDS, 2 * start_seconds)  # other processes come and go meanwhile
    steps, expected = rows(first.folder.steps), rows(alone.steps)
    assert [(row["step"], row["samples"]) for row in steps] == [(row["step"], row["samples"]) for row in expected]
    losses = [float(row["loss"]) for row in expected]
    assert [float(row["loss"]) for row in steps] == pytest.approx(losses, rel=1e-9)
    epochs, others = rows(first.folder.epochs), rows(alone.epochs)
    assert len(epochs) == len(others) == 20
    for row, other in zip(epochs, others, strict=True):
        assert float(row["train_loss"]) == pytest.approx(float(other["train_loss"]), rel=1e-9)
        assert float(row["val_loss"]) == pytest.approx(float(other["val_loss"]), rel=1e-9)
    assert result["samples_seen"] == alone.read_result()["samples_seen"]
    gone(cluster, 1, 2, seconds=5)
