import copy
import json
import os
import shutil
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest
from hydra import compose, initialize_config_dir

from runner import apex_installation, horovod_installation, provenance
from runner.compatibility import complete
from runner.config import CONF, check
from runner.provenance import WITHOUT_EFFECT, code_state, signature
from runner.run_folder import RunFolder


@pytest.fixture(scope="module")
def config():
    with initialize_config_dir(str(CONF), version_base="1.3"):
        return complete(check(compose("config", ["parallel=ddp", "trainer.device=cpu"])))


def leaves(config):
    return [(group, key) for group, section in config.items() if isinstance(section, dict) for key in section]


def test_equal_configs_have_equal_signatures(config):
    assert signature(config) == signature(dict(reversed(copy.deepcopy(config).items())))
    assert len(signature(config)) == 16


def test_every_key_counts_but_those_without_effect(config):
    for group, key in leaves(config):
        changed = copy.deepcopy(config)
        changed[group][key] = "something else"
        assert (signature(changed) == signature(config)) == ((group, key) in WITHOUT_EFFECT), f"{group}.{key}"
    assert signature({**config, "seed": 2}) != signature(config)


def test_every_key_without_effect_exists(config):
    assert set(WITHOUT_EFFECT) <= set(leaves(config))


@pytest.fixture
def repository(tmp_path, monkeypatch):
    """A repository of its own with one commit of run.py."""
    monkeypatch.setattr(provenance, "ROOT", tmp_path)
    (tmp_path / "run.py").write_text("print(1)\n")
    for command in ("init -q", "add run.py", "-c user.name=a -c user.email=a@b commit -qm first"):
        subprocess.run(["git", *command.split()], cwd=tmp_path, check=True)
    return tmp_path


def git(repository: Path, *arguments: str) -> str:
    return subprocess.run(["git", *arguments], cwd=repository, check=True, capture_output=True, text=True).stdout


def test_a_clean_commit_has_no_diff(repository):
    assert code_state() == (git(repository, "rev-parse", "HEAD").strip(), b"")


def test_changes_and_new_code_files_are_in_the_diff(repository):
    (repository / "run.py").write_text("print(2)\n")
    (repository / "new.py").write_text("print('new')\n")
    (repository / "photo.jpg").write_bytes(b"not code")
    before = git(repository, "status", "--porcelain"), (repository / ".git" / "index").read_bytes()
    diff = code_state()[1].decode()
    assert "+print(2)" in diff
    assert "+print('new')" in diff
    assert "photo" not in diff
    assert (git(repository, "status", "--porcelain"), (repository / ".git" / "index").read_bytes()) == before


def test_the_diff_restores_the_code(repository):
    (repository / "run.py").write_text("print(2)\n")
    (repository / "new.py").write_text("print('new')\n")
    diff = code_state()[1]
    git(repository, "stash", "-u", "-q")
    subprocess.run(["git", "apply", "-"], cwd=repository, input=diff, check=True)
    assert (repository / "run.py").read_text() == "print(2)\n"
    assert (repository / "new.py").read_text() == "print('new')\n"


def test_staged_changes_are_in_the_diff(repository):
    (repository / "run.py").write_text("print(3)\n")
    git(repository, "add", "run.py")
    assert b"+print(3)" in code_state()[1]


def test_without_a_repository_there_is_no_commit(tmp_path, monkeypatch):
    monkeypatch.setattr(provenance, "ROOT", tmp_path)
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    assert code_state() == (None, b"")


def test_without_git_there_is_no_commit(repository, monkeypatch):
    monkeypatch.setenv("PATH", str(repository))
    assert shutil.which("git") is None
    assert code_state() == (None, b"")


@pytest.mark.parametrize(("horovod", "apex"), [("9.8", "0.1 with amp"), (None, None)])
def test_optional_libraries_are_named_and_null_when_absent(config, tmp_path, monkeypatch, horovod, apex):
    monkeypatch.setattr(horovod_installation, "version", lambda: horovod)
    monkeypatch.setattr(apex_installation, "description", lambda: apex)
    folder = RunFolder(tmp_path)
    provenance.record(folder, config)
    versions = json.loads(folder.provenance.read_text())["versions"]
    assert (versions["horovod"], versions["apex"]) == (horovod, apex)


@pytest.mark.parametrize(("hosts", "ranks"), [(None, 2), (["a:2", "b:2", "c:2"], 6)])
def test_ranks_are_counted_on_all_machines(config, tmp_path, hosts, ranks):
    folder, launcher = RunFolder(tmp_path), {**config["launcher"], "hosts": hosts}
    provenance.record(folder, {**config, "launcher": launcher})
    assert json.loads(folder.provenance.read_text())["ranks"] == ranks


def test_of_a_real_run(finished_run):
    content = json.loads(finished_run.provenance.read_text())
    assert content["command"].startswith("python /") or content["command"].startswith("python run.py")
    assert "trainer.max_steps=2" in content["command"]
    assert "FreshFolder" not in content["command"]
    assert content["directory"] == str(finished_run.path.parent)
    assert content["signature"] == signature(finished_run.read_config())
    assert content["versions"]["python"] == ".".join(map(str, sys.version_info[:3]))
    assert content["versions"]["torch"] == content["packages"]["torch"] == metadata.version("torch")
    assert content["versions"]["horovod"] == content["packages"].get("horovod")
    assert content["cpu"]["cores"] == len(os.sched_getaffinity(0))
    assert (content["ranks"], content["launcher"]) == (1, "inline")
    assert content["clean"] == (content["commit"] is not None and not finished_run.code_diff.exists())
