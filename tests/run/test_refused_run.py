"""A refused run leaves nothing of its own, and everything that was there before."""

import os
from pathlib import Path
from typing import Any

import pytest

from manyheads.runner.errors import MISTAKES
from manyheads.runner.run.refused_run import clear_refused
from manyheads.runner.run.run_folder import RunFolder

CONFIG = {"seed": 1}


def names(path: Path) -> list[str]:
    return sorted(entry.name for entry in path.iterdir())


def refused(path: Path) -> RunFolder:
    (path / ".hydra").mkdir(parents=True)
    (path / ".hydra" / "config.yaml").write_text("seed: 1\n")
    (path / "run.log").touch()
    return RunFolder(path)


def test_removes_what_hydra_wrote(tmp_path):
    clear_refused(refused(tmp_path / "run"))
    assert names(tmp_path) == []


def test_keeps_the_files_of_others(tmp_path):
    folder = refused(tmp_path / "run")
    (folder.path / "notes.log").write_text("mine")
    clear_refused(folder)
    assert names(folder.path) == ["notes.log"]


def refused_by_ranks(path: Path, **result: Any) -> RunFolder:
    folder = refused(path)
    folder.write_config(CONFIG)
    for name in (
        "code/a.py",
        "logs/rank_0.log",
        "steps.csv",
        "host.csv",
        "threads.json",
        "crowding.json",
        "provenance.json",
        "run.log",
    ):
        (path / name).parent.mkdir(exist_ok=True)
        (path / name).write_text("{}")
    error = {"type": "ConfigurationError", "kind": "ConfigurationError", "message": "no such class"}
    folder.write_json(folder.result, {"status": "failed", "steps": 0, "error": error, **result})
    return folder


@pytest.mark.parametrize("name", MISTAKES)
def test_removes_a_run_that_its_ranks_refused(tmp_path, name, capsys):
    error = {"type": name, "kind": "ConfigurationError", "message": "no such class"}
    clear_refused(refused_by_ranks(tmp_path / "run", error=error))
    assert names(tmp_path) == []
    assert capsys.readouterr().out == f"{tmp_path}/run is removed: the run was refused before its first update\n"


def test_keeps_folders_in_which_something_was_before(tmp_path):
    (tmp_path / "run" / "code").mkdir(parents=True)
    (tmp_path / "run" / "code" / "mine.py").write_text("1")
    os.utime(tmp_path / "run" / "code" / "mine.py", (1, 1))
    folder = refused_by_ranks(tmp_path / "run")
    clear_refused(folder)
    assert names(folder.path) == ["code"]
    assert (folder.code / "mine.py").read_text() == "1"
    assert not folder.holds_run()


@pytest.mark.parametrize("result", [{"steps": 3}, {"error": {"type": "RuntimeError"}}, {"error": None}])
def test_keeps_a_run_that_began_or_failed(tmp_path, result):
    folder = refused_by_ranks(tmp_path / "run", **result)
    clear_refused(folder)
    assert folder.config.exists()
    assert folder.read_result()["status"] == "failed"


def test_keeps_a_run(tmp_path):
    folder = refused(tmp_path / "run")
    folder.write_config(CONFIG)
    clear_refused(folder)
    assert names(folder.path) == [".hydra", "run.log", "run.yaml", "seal.json"]


@pytest.mark.processes
def test_a_refused_run_that_is_its_own_working_directory_leaves_nothing_either(tmp_path, run_command):
    refused = ("model=custom", "model._target_=collections.OrderedDict")
    done = run_command("hydra.job.chdir=true", *refused, "trainer.device=cpu")
    assert done.code == 2
    assert "error: model._target_=collections.OrderedDict is not a torch.nn.Module." in done.err
    assert "Traceback" not in done.err
    assert names(tmp_path) == []
