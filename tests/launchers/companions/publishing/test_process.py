"""The publisher as a process beside a run: what a tracker does, the run does not feel."""

import os
import signal
import time

import psutil
import pytest

from manyheads.launchers.companions import Accompanied
from manyheads.launchers.companions.publishing import accompany
from manyheads.launchers.companions.publishing import publishers as parents
from manyheads.launchers.companions.publishing.publish_state import PublishState, state_file
from manyheads.launchers.companions.publishing.publisher import MAIN
from manyheads.launchers.launch import launch, prepare
from manyheads.runner.errors import ConfigurationError
from manyheads.runner.option.run_config import RunConfig
from manyheads.runner.run.run_folder import RunFolder
from tests.callbacks.tracking import curve, only, runs, wait_for
from tests.in_process import rows
from tests.launchers.companions.publishing.conftest import planned, resume_to_the_end
from tests.tail import tail

QUICK = ("trainer.max_steps=20", "trainer.epochs=1", "trainer.log_every=4", "data.val_samples=11")


def processes(folder: RunFolder) -> list[psutil.Process]:
    """The publishers of a run that are there."""
    found = []
    for process in psutil.process_iter(["cmdline"]):
        words = process.info["cmdline"] or []
        if MAIN in words and str(folder.path) in words and process.status() != psutil.STATUS_ZOMBIE:
            found.append(process)
    return found


@pytest.mark.processes
@pytest.mark.parametrize(
    "ranks",
    [
        pytest.param(("parallel=single",), id="single"),
        tail(("parallel=ddp", "launcher.nproc_per_node=2"), id="spawn"),
        tail(("parallel=ddp", "launcher=mpirun", "launcher.nproc_per_node=2"), id="mpirun"),
    ],
)
def test_a_run_is_one_run_also_when_it_is_resumed(tmp_path, place, capfd, ranks):
    folder = planned(tmp_path / "run", place, *QUICK, *ranks, "trainer.stop_after=9", "checkpoint.every=4")
    launch(prepare(folder))
    resume_to_the_end(folder)
    assert len(runs(place)) == 1
    assert [step for step, _ in curve(place, "train/loss")] == [4, 8, 9, 12, 16, 20]
    assert [each["status"] for each in only(place, "close")] == ["completed", "completed"]
    assert curve(place, "epoch/val_loss") == [(20, float(rows(folder.epochs)[0]["val_loss"]))]
    assert f"published to kept: kept://{runs(place)[0].name}" in capfd.readouterr().out
    assert not processes(folder)


@pytest.mark.processes
@pytest.mark.parametrize("trouble", ["away", "hangs"])
def test_a_tracker_that_is_down_costs_nothing_but_a_line(tmp_path, place, capfd, monkeypatch, trouble):
    monkeypatch.setattr(parents, "END_SECONDS", 1.0)
    without = planned(tmp_path / "without", place, *QUICK)
    without.write_config({**without.read_config(), "logger": {}})
    folder = planned(tmp_path / "run", place, *QUICK)
    (place / trouble).touch()
    result = launch(prepare(folder))
    said = capfd.readouterr().err
    assert result["status"] == "completed"
    assert said.count("warning: logger.kept: this run was only partly published") == 1
    assert f"publish {folder} --to kept" in said
    assert not processes(folder)
    (place / trouble).unlink()
    launch(prepare(without))
    assert without.read_result()["weights_sha256"] == result["weights_sha256"]


@pytest.mark.processes
def test_it_comes_back_in_the_middle_of_a_run(tmp_path, place, capfd):
    """The tracker is away until the run has begun; nothing is missing in the end, and nothing is said."""
    (place / "away").touch()
    folder = planned(tmp_path / "run", place, *QUICK)
    with accompany(Accompanied(folder, RunConfig.read(folder))):
        wait_for(lambda: PublishState.read(state_file(folder, "kept")).error is not None, seconds=60)
        (place / "away").unlink()
        launch_alone(folder)
    assert [step for step, _ in curve(place, "train/loss")] == [4, 8, 12, 16, 20]
    assert "warning" not in capfd.readouterr().err


def launch_alone(folder: RunFolder) -> None:
    """The run, without publishers of its own."""
    config = folder.read_config()
    folder.write_config({**config, "logger": {}})
    launch(prepare(folder))
    folder.write_config(config)


@pytest.mark.processes
def test_a_wrong_tracker_is_told_and_the_run_completes(tmp_path, place, capfd):
    folder = planned(tmp_path / "run", place, *QUICK, "+logger.kept.no_such_key=1")
    assert launch(prepare(folder))["status"] == "completed"
    said = capfd.readouterr().err
    assert "logger.kept" in said
    assert "rejects its arguments" in said


@pytest.mark.processes
def test_the_tracker_has_nothing_of_a_run_that_its_ranks_refuse(tmp_path, place, capfd):
    folder = planned(tmp_path / "run", place, *QUICK, "model=custom", "model._target_=collections.OrderedDict")
    with pytest.raises(ConfigurationError, match="OrderedDict is not a torch.nn.Module"):
        launch(prepare(folder))
    assert runs(place) == []
    assert "kept" not in "".join(capfd.readouterr())
    assert not processes(folder)


@pytest.mark.processes
def test_when_the_parent_is_killed_the_tracker_hears_the_truth(tmp_path, place):
    """Its end closes the publisher's standard input, as the end of a run does."""
    folder = planned(tmp_path / "run", place, *QUICK)
    child = os.fork()
    if not child:
        with accompany(Accompanied(folder, RunConfig.read(folder))):
            time.sleep(600)
    wait_for(lambda: processes(folder) != [], seconds=60)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    wait_for(lambda: not processes(folder), seconds=60)
    (closed,) = only(place, "close")
    assert (closed["status"], closed["error"]) == ("failed", "its process was killed")


@pytest.mark.processes
def test_a_run_that_was_killed_as_soon_as_it_was_frozen_is_recorded_and_published_when_it_is_resumed(tmp_path, place):
    folder = planned(tmp_path / "run", place, *QUICK)
    folder.provenance.unlink()
    assert launch(prepare(folder))["status"] == "completed"
    assert folder.provenance.exists()
    assert len(runs(place)) == 1
