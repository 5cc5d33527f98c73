import hashlib
import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from manyheads.runner.errors import ConfigurationError
from manyheads.runner.run.run_folder import RunFolder
from tests.conftest import held

CONFIG = {"seed": 1, "trainer": {"clip_norm": float("inf"), "max_steps": None}, "data": {"root": "/ä/ö"}}


@pytest.fixture
def folder(tmp_path):
    folder = RunFolder(tmp_path / "run")
    folder.write_config(CONFIG)
    return folder


def names(path: Path) -> list[str]:
    return sorted(entry.name for entry in path.iterdir())


def test_config_survives_the_way_through_the_file(folder):
    assert folder.read_config() == CONFIG
    assert list(folder.read_config()) == list(CONFIG)


@pytest.mark.parametrize("content", [b"a: [", b"just text", b"", b"\xff\xfe"])
def test_a_broken_config_is_refused(folder, content):
    folder.config.write_bytes(content)
    with pytest.raises(ConfigurationError, match="run.yaml cannot be read"):
        RunFolder(folder.path).read_config()


@pytest.mark.parametrize("act", [RunFolder.read_config, lambda folder: folder.locked().__enter__()])
def test_a_folder_without_run_is_refused(tmp_path, act):
    with pytest.raises(ConfigurationError, match=f"{re.escape(str(tmp_path))} holds no run"):
        act(RunFolder(tmp_path))


def test_only_one_process_at_a_time(folder):
    with held(folder) as holder:
        with pytest.raises(ConfigurationError, match="is being run by another process"), folder.locked():
            pytest.fail("two at a time")
        holder.stdin.close()
    with folder.locked():
        pass


def test_a_lock_ends_with_its_holder(folder):
    code = (
        "import os, sys; from manyheads.runner.run.run_folder import RunFolder\n"
        "with RunFolder(sys.argv[1]).locked(): os.kill(os.getpid(), 9)"
    )
    assert subprocess.run([sys.executable, "-c", code, str(folder.path)]).returncode == -signal.SIGKILL
    with folder.locked():
        pass


def test_result_is_none_until_there_is_one(folder):
    assert folder.read_result() is None
    folder.write_json(folder.result, {"status": "completed", "path": folder.path})
    assert folder.read_result() == {"status": "completed", "path": str(folder.path)}
    assert folder.result.read_text().endswith("}\n")


def test_a_run_is_complete_when_its_parent_has_recorded_that(folder):
    assert folder.completed() is None
    folder.write_json(folder.result, {"status": "completed", "steps": 3})  # by rank 0
    assert folder.completed() is None
    folder.write_json(folder.result, {"status": "interrupted", "wall_seconds": 1.0})
    assert folder.completed() is None
    folder.write_json(folder.result, {"status": "completed", "steps": 3, "wall_seconds": 1.0})
    assert folder.completed()["steps"] == 3


def test_clearing_an_attempt_keeps_logs_and_checkpoints(folder):
    folder.clear_attempt()
    folder.checkpoints.mkdir()
    kept = [folder.last_checkpoint, folder.best_checkpoint, folder.rank_log(0), folder.steps, folder.epochs]
    for path in kept:
        path.write_text("kept")
    leftover = folder.checkpoints / ".last.pt.1234.aside"
    for path in [folder.result, leftover]:
        path.write_text("{}")
    folder.clear_attempt()
    assert all(path.exists() for path in [*kept, folder.config])
    assert not any(path.exists() for path in [folder.result, leftover])


def test_digests_are_of_the_files_that_are_there(folder):
    assert list(folder.digests()) == ["run.yaml"]
    folder.steps.write_text("epoch,step\n1,1\n")
    before = folder.digests()
    assert before["steps.csv"] == hashlib.sha256(b"epoch,step\n1,1\n").hexdigest()
    folder.steps.write_text("epoch,step\n1,2\n")
    after = folder.digests()
    assert after["steps.csv"] != before["steps.csv"]
    assert after["run.yaml"] == before["run.yaml"]


def test_is_shown_relative_to_where_the_user_is(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert str(RunFolder("outputs/run")) == os.path.join("outputs", "run")
    assert RunFolder("outputs/run").path == tmp_path / "outputs" / "run"
    assert str(RunFolder("/elsewhere/run")) == "/elsewhere/run"
    assert str(RunFolder(".")) == str(tmp_path)  # as with hydra.job.chdir=true


def test_knows_whether_it_holds_a_run(tmp_path, folder):
    assert folder.holds_run()
    assert not RunFolder(tmp_path / "absent").holds_run()
    (tmp_path / "other" / "data").mkdir(parents=True)
    assert not RunFolder(tmp_path / "other").holds_run()
    (tmp_path / "other" / ".hydra").mkdir()  # what any Hydra application leaves
    assert RunFolder(tmp_path / "other").holds_run()


def test_a_finished_run_has_every_file(finished_run):
    left = names(finished_run.path)
    assert set(left) >= {".hydra", "run.yaml", "provenance.json", "run.log", "logs", "steps.csv", "epochs.csv"}
    assert set(left) >= {"tensorboard", "checkpoints", "result.json"}
    assert not finished_run.heartbeat.exists()
    assert list(finished_run.path.rglob("*.aside")) == []
    result = json.loads(finished_run.result.read_text())
    assert result["files"] == finished_run.digests()
