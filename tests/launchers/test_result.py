import json
import signal

import pytest

from manyheads.launchers.result import as_failure, finish, last_known
from manyheads.runner.errors import ConfigurationError, Failure, Interrupted, Kind, RunFailed
from manyheads.runner.run.run_folder import RunFolder
from tests.in_process import typed

KEYS = ["status", "error", "epochs", "steps", "samples_seen", "world_size", "device", "parallel", "precision"]
KEYS += ["launcher", "train_seconds", "wall_seconds", "samples_per_second", "peak_memory_mb", "metrics", "objective"]
KEYS += ["best", "weights_sha256", "files"]
CONFIG = typed("parallel=ddp", "trainer.device=cpu", "launcher.nproc_per_node=2")
KNOWN = {
    "status": "completed",
    "signal": None,
    "epochs": 3,
    "steps": 30,
    "samples_seen": 960,
    "device": "Some CPU",
    "metrics": {"val_acc1": 90.0},
    "objective": 90.0,
    "weights_sha256": "ab" * 32,
    "corrupt_samples": 1,
}
ERROR = {"kind": "ProcessDied", "rank": 1, "exit_code": -9, "type": "ProcessDied", "message": "killed", "traceback": ""}
FAILURE = Failure(Kind.PROCESS_DIED, rank=1, exit_code=-9, message="killed")


@pytest.fixture
def folder(tmp_path):
    folder = RunFolder(tmp_path)
    folder.write_config(CONFIG.written)
    return folder


def written(folder: RunFolder) -> dict:
    return json.loads(folder.result.read_text())


def test_a_completed_run(folder):
    folder.write_json(folder.result, KNOWN)
    finish(folder, CONFIG.as_planned, 12.34567)
    result = written(folder)
    assert list(result)[: len(KEYS)] == KEYS
    assert result.items() >= {key: value for key, value in KNOWN.items() if key != "signal"}.items()
    assert (result["world_size"], result["parallel"], result["launcher"]) == (2, "ddp", "spawn")
    assert result["wall_seconds"] == 12.346
    assert result["error"] is None
    assert result["files"] == folder.digests()
    assert "signal" not in result


@pytest.mark.parametrize("known", [None, KNOWN, {**KNOWN, "status": "interrupted"}])
def test_a_failure_counts_whatever_rank_0_wrote(folder, known):
    if known is not None:
        folder.write_json(folder.result, known)
    finish(folder, CONFIG.as_planned, 1.0, RunFailed(FAILURE))
    assert (written(folder)["status"], written(folder)["error"]) == ("failed", ERROR)
    assert list(written(folder)["error"]) == list(ERROR)


def test_a_configuration_error(folder):
    finish(folder, CONFIG.as_planned, 1.0, ConfigurationError.at("data.root", "/x", " does not exist"))
    assert written(folder)["status"] == "failed"
    assert written(folder)["error"] == {
        "kind": "ConfigurationError",
        "rank": None,
        "exit_code": 2,
        "type": "ConfigurationError",
        "message": "data.root=/x does not exist",
        "traceback": "",
        "key": "data.root",
        "value": "/x",
    }


@pytest.mark.parametrize(
    ("known", "status"), [(None, "interrupted"), ({"status": "interrupted"}, "interrupted"), (KNOWN, "completed")]
)
def test_an_interruption_does_not_undo_a_completed_run(folder, known, status):
    if known is not None:
        folder.write_json(folder.result, known)
    finish(folder, CONFIG.as_planned, 1.0, Interrupted(signal.SIGTERM))
    assert written(folder)["status"] == status
    assert written(folder).get("signal") == (signal.SIGTERM if status == "interrupted" else None)
    assert written(folder)["error"] is None


def test_a_run_that_vanished_without_a_word_failed(folder):
    assert finish(folder, CONFIG.as_planned, 1.0)["status"] == "failed"


def test_how_far_a_killed_run_got_is_in_its_tables(folder):
    folder.steps.write_text("epoch,step,samples\n1,10,320\n2,20,640\n2,3")  # the last row was being written
    folder.epochs.write_text("epoch,step\n1,15\n")
    finish(folder, CONFIG.as_planned, 1.0, RunFailed(FAILURE))
    assert {key: written(folder)[key] for key in ("epochs", "steps", "samples_seen")} == {
        "epochs": 1,
        "steps": 20,
        "samples_seen": 640,
    }


@pytest.mark.parametrize("content", [None, "", "epoch,step,samples\n", "epoch,step,samples\n1"])
def test_nothing_is_known_of_a_run_without_rows(folder, content):
    if content is not None:
        folder.steps.write_text(content)
        folder.epochs.write_text(content)
    assert last_known(folder) == {"epochs": 0, "steps": 0, "samples_seen": 0}


@pytest.mark.parametrize("reason", [None, Interrupted(signal.SIGINT)])
def test_no_failure_no_error(reason):
    assert as_failure(reason) is None


def test_of_a_real_run(finished_run):
    result = written(finished_run)
    assert list(result)[: len(KEYS)] == KEYS
    assert (result["status"], result["steps"], result["samples_seen"]) == ("completed", 2, 64)
    assert (result["parallel"], result["launcher"], result["world_size"]) == ("single", "inline", 1)
    assert len(result["peak_memory_mb"]) == 1
    assert len(result["weights_sha256"]) == 64
    assert result["metrics"]["val_samples"] == 359
