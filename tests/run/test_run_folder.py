import hashlib
import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

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
        folder.read_config()


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


def test_knows_whether_it_holds_a_run(tmp_path, folder):
    assert folder.holds_run()
    assert not RunFolder(tmp_path / "absent").holds_run()
    (tmp_path / "other" / "data").mkdir(parents=True)
    assert not RunFolder(tmp_path / "other").holds_run()
    (tmp_path / "other" / ".hydra").mkdir()  # what any Hydra application leaves
    assert RunFolder(tmp_path / "other").holds_run()


class TestClearRefused:
    """A refused run leaves nothing of its own, and everything that was there before."""

    def refused(self, path: Path) -> RunFolder:
        (path / ".hydra").mkdir(parents=True)
        (path / ".hydra" / "config.yaml").write_text("seed: 1\n")
        (path / "run.log").touch()
        return RunFolder(path)

    def test_removes_what_hydra_wrote(self, tmp_path):
        self.refused(tmp_path / "run").clear_refused()
        assert names(tmp_path) == []

    def test_keeps_the_files_of_others(self, tmp_path):
        folder = self.refused(tmp_path / "run")
        (folder.path / "notes.log").write_text("mine")
        folder.clear_refused()
        assert names(folder.path) == ["notes.log"]

    def refused_by_ranks(self, path: Path, **result: Any) -> RunFolder:
        folder = self.refused(path)
        folder.write_config(CONFIG)
        for name in ("code/a.py", "logs/rank_0.log", "steps.csv", "host.csv", "provenance.json", "run.log"):
            (path / name).parent.mkdir(exist_ok=True)
            (path / name).write_text("{}")
        error = {"type": "ConfigurationError", "message": "no such class"}
        folder.write_json(folder.result, {"status": "failed", "steps": 0, "error": error, **result})
        return folder

    def test_removes_a_run_that_its_ranks_refused(self, tmp_path):
        self.refused_by_ranks(tmp_path / "run").clear_refused()
        assert names(tmp_path) == []

    def test_keeps_folders_in_which_something_was_before(self, tmp_path):
        (tmp_path / "run" / "code").mkdir(parents=True)
        (tmp_path / "run" / "code" / "mine.py").write_text("1")
        os.utime(tmp_path / "run" / "code" / "mine.py", (1, 1))
        folder = self.refused_by_ranks(tmp_path / "run")
        folder.clear_refused()
        assert names(folder.path) == ["code"]
        assert (folder.code / "mine.py").read_text() == "1"
        assert not folder.holds_run()

    @pytest.mark.parametrize("result", [{"steps": 3}, {"error": {"type": "RuntimeError"}}, {"error": None}])
    def test_keeps_a_run_that_began_or_failed(self, tmp_path, result):
        folder = self.refused_by_ranks(tmp_path / "run", **result)
        folder.clear_refused()
        assert folder.config.exists()
        assert folder.read_result()["status"] == "failed"

    def test_keeps_a_run(self, tmp_path):
        folder = self.refused(tmp_path / "run")
        folder.write_config(CONFIG)
        folder.clear_refused()
        assert names(folder.path) == [".hydra", "run.log", "run.yaml", "seal.json"]


def test_a_finished_run_has_every_file(finished_run):
    left = names(finished_run.path)
    assert set(left) >= {".hydra", "run.yaml", "provenance.json", "run.log", "logs", "steps.csv", "epochs.csv"}
    assert set(left) >= {"tensorboard", "checkpoints", "result.json"}
    assert not finished_run.heartbeat.exists()
    assert list(finished_run.path.rglob("*.aside")) == []
    result = json.loads(finished_run.result.read_text())
    assert result["files"] == finished_run.digests()
