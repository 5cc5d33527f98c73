"""A project that ``manyheads new`` writes."""

import subprocess
import sys
from pathlib import Path

import pytest

from manyheads.runner.commands.new import write_project
from manyheads.runner.errors import ConfigurationError
from manyheads.runner.run.run_folder import RunFolder
from manyheads.runner.run.seal import is_own_place
from tests.conftest import ROOT, RUN, execute
from tests.tail import tail

pytestmark = pytest.mark.processes


@pytest.fixture(scope="module")
def project(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("projects") / "my-shapes"
    done = execute(sys.executable, "-m", "manyheads.runner", "new", str(folder), cwd=folder.parent)
    assert done.code == 0, done.err
    assert f"cd {folder}" in done.out
    assert "experiment=quick" in done.out
    return folder


def test_it_is_the_users_own_at_once(project):
    assert is_own_place(project / "conf")
    names = {str(path.relative_to(project)) for path in project.rglob("*") if path.is_file()}
    assert {"pyproject.toml", ".gitignore", "README.md", "my_shapes/model.py", "conf/experiment/quick.yaml"} <= names
    assert not [name for name in names if name.endswith(".j2")]


@pytest.mark.tail
def test_it_learns(project, tmp_path):
    done = execute(sys.executable, str(RUN), "experiment=quick", f"hydra.run.dir={tmp_path}/run", cwd=project)
    assert done.code == 0, done.err
    assert RunFolder(tmp_path / "run").read_result()["metrics"]["val_acc1"] > 90


@pytest.mark.tail
def test_its_own_test_passes(project):
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(project)]
    done = subprocess.run(command, cwd=project, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_its_code_is_as_clean_as_ours(project):
    for words in (["check", "--ignore=D,I,TID253"], ["format", "--check"]):
        settings = ["--no-cache", "--config", str(ROOT / "pyproject.toml"), str(project)]
        done = subprocess.run([sys.executable, "-m", "ruff", *words, *settings], capture_output=True, text=True)
        assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("name", ["1st", "class", tail("json"), "torch", "tests", "x.y", tail("a b")])
def test_names_that_can_be_no_package(tmp_path, name):
    with pytest.raises(ConfigurationError, match="is not a valid package name|already has that name"):
        write_project(tmp_path / name)
    assert not list(tmp_path.iterdir())


def test_a_folder_that_holds_something(tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.tex").touch()
    with pytest.raises(ConfigurationError, match="already exists and is not empty"):
        write_project(tmp_path / "mine")
    (tmp_path / "empty").mkdir()
    write_project(tmp_path / "empty")
    assert (tmp_path / "empty" / "empty" / "model.py").exists()
