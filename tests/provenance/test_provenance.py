import copy
import json
import os
import shlex
import sys
from importlib import metadata
from pathlib import Path

import pytest

from manyheads.runner.config.lookup import ABOUT, known_keys
from manyheads.runner.config.schema import check
from manyheads.runner.option.run_config import RunConfig
from manyheads.runner.option.tree import OPTION
from manyheads.runner.provenance import provenance
from manyheads.runner.provenance.provenance import describe, signature, without_effect
from manyheads.runner.run.run_folder import RunFolder
from tests.composing import composed
from tests.in_process import completed_for_here as complete


@pytest.fixture(scope="module")
def config():
    return complete(check(composed("data=mnist", "parallel=ddp", "trainer.device=cpu")))


def leaves(config):
    return [(group, key) for group, section in config.items() if isinstance(section, dict) for key in section]


def test_equal_configs_have_equal_signatures(config):
    assert signature(config) == signature(dict(reversed(copy.deepcopy(config).items())))
    assert len(signature(config)) == 16


def test_every_key_counts_but_those_without_effect(config):
    for group, key in leaves(config):
        changed = copy.deepcopy(config)
        if key != OPTION:
            changed[group][key] = "something else"
            is_ignored = not {group, f"{group}.{key}"}.isdisjoint(without_effect())
            assert (signature(changed) == signature(config)) == is_ignored, key
    assert signature({**config, "seed": 2}) != signature(config)


def test_what_the_user_says_of_a_run_does_not_count(config):
    said = config | {"name": "first", "tags": ["baseline"], "notes": "as in the paper"}
    before_there_were = {key: value for key, value in config.items() if key not in ABOUT}
    assert signature(said) == signature(config) == signature(before_there_were)


def test_every_key_without_effect_exists():
    assert {*known_keys()} >= without_effect()


def test_a_tracker_changes_no_signature():
    plain, tracked = (complete(check(composed(*given))) for given in ((), ("logger=[csv,tensorboard,mlflow]",)))
    assert signature(plain) == signature(tracked)


@pytest.mark.parametrize(
    "key", ["checkpoint.keep_every=5", "checkpoint.asynchronous=true", "launcher.start_timeout=60"]
)
def test_neither_do_keys_of_when_and_how_to_write_or_to_wait(key):
    given = ("parallel=ddp", "launcher=torchrun", "trainer.device=cpu")
    assert signature(complete(check(composed(*given)))) == signature(complete(check(composed(*given, key))))


@pytest.mark.parametrize(("horovod", "apex"), [("9.8", "0.1 with amp"), (None, None)])
def test_optional_libraries_are_named_and_null_when_absent(config, tmp_path, monkeypatch, horovod, apex):
    from manyheads.runner.machine import apex_installation
    from manyheads.runner.parallel import horovod_installation

    monkeypatch.setattr(horovod_installation, "version", lambda: horovod)
    monkeypatch.setattr(apex_installation, "description", lambda: apex)
    folder = RunFolder(tmp_path)
    provenance.record(folder, RunConfig.of(config))
    versions = json.loads(folder.provenance.read_text())["versions"]
    assert (versions["horovod"], versions["apex"]) == (horovod, apex)


@pytest.mark.parametrize(("hosts", "ranks"), [(None, 2), (["a:2", "b:2", "c:2"], 6)])
def test_ranks_are_counted_on_all_machines(config, tmp_path, hosts, ranks):
    folder, launcher = RunFolder(tmp_path), {**config["launcher"], "hosts": hosts}
    provenance.record(folder, RunConfig.of({**config, "launcher": launcher}))
    assert json.loads(folder.provenance.read_text())["ranks"] == ranks


def test_of_a_real_run(finished_run):
    content = json.loads(finished_run.provenance.read_text())
    program, script, *_ = shlex.split(content["command"])
    assert (program, Path(script).name) == ("python", "run.py")
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
    assert content["data"]["files"] == 1
    assert content["composed_from"] is None


def test_it_says_what_describe_says(config, tmp_path):
    folder = RunFolder(tmp_path)
    provenance.record(folder, RunConfig.of(config))
    content = json.loads(folder.provenance.read_text())
    assert content.pop("id")
    assert content == describe(RunConfig.of(config))


def test_a_run_composed_from_a_saved_config_points_back(config):
    assert describe(RunConfig.of(config), composed_from="/a/run.yaml")["composed_from"] == "/a/run.yaml"


def test_libraries_that_came_with_torch_have_versions(config, monkeypatch):
    packages = {"nvidia-cudnn-cu13": "9.1", "nvidia-nccl-cu12": "2.2", "torch": "2.6"}
    monkeypatch.setattr(provenance, "installed_packages", lambda: packages)
    versions = describe(RunConfig.of(config))["versions"]
    assert (versions["cudnn"], versions["nccl"], versions["torch"]) == ("9.1", "2.2", "2.6")


def test_variables_that_can_change_numbers_are_kept(config, monkeypatch):
    monkeypatch.setenv("NVIDIA_TF32_OVERRIDE", "1")
    monkeypatch.setenv("UNRELATED", "1")
    assert describe(RunConfig.of(config))["environment"]["NVIDIA_TF32_OVERRIDE"] == "1"
    assert "UNRELATED" not in describe(RunConfig.of(config))["environment"]


def test_installed_packages_are_those_that_are_imported(tmp_path, monkeypatch):
    for folder, version in (("first", "2.0"), ("second", "1.0")):
        (tmp_path / folder / "twice.dist-info").mkdir(parents=True)
        text = f"Metadata-Version: 2.4\nName: twice\nVersion: {version}\n\nA description.\nVersion: 9\n"
        (tmp_path / folder / "twice.dist-info" / "METADATA").write_text(text)
    (tmp_path / "first" / "broken.dist-info").mkdir()
    parsed = {each.metadata["Name"]: each.version for each in metadata.distributions()}
    monkeypatch.setattr(sys, "path", [str(tmp_path / "first"), str(tmp_path / "second"), *sys.path])
    assert provenance.installed_packages.__wrapped__() == parsed | {"twice": "2.0"}
