"""A trained run that somebody sent, to be loaded, asked, exported: its weights are data, and its code is not run."""

import json
import os
import shutil

import pytest
import torch
import yaml
from PIL import Image

import manyheads
from manyheads.runner.errors import ConfigurationError
from manyheads.runner.run.run_folder import RunFolder
from tests.in_process import small, train
from tests.trust.foreign import REFUSED, assert_refused, given

NET = ("model=custom", "model._target_=tests.serve.nets.Net", "+model.width=5")


@pytest.fixture(scope="module")
def theirs(tmp_path_factory) -> RunFolder:
    """A run of a class that is not on the list of those that anybody may name."""
    return train(tmp_path_factory.mktemp("theirs"), small(*NET, "trainer.max_steps=1")).folder


def received(theirs: RunFolder, folder, **changes) -> RunFolder:
    """The run as it arrives here: without a seal of ours. ``changes``: by section, over its config."""
    shutil.copytree(theirs.path, folder)
    config = theirs.read_config()
    for section, values in changes.items():
        config[section] = {**config[section], **values}
    given(folder, config)
    return RunFolder(folder)


COMMANDS = {
    "evaluate": (),
    "predict": ("images",),
    "export": ("--format", "safetensors"),
}


@pytest.mark.parametrize("command", COMMANDS)
def test_code_that_the_user_does_not_trust(command_here, here, theirs, command):
    received(theirs, here / "theirs", model={"_target_": "my_package.Net"})
    done = command_here(command, "theirs", *COMMANDS[command])
    assert_refused(done, here, REFUSED, "model._target_=my_package.Net", "trust=[my_package]")


def test_loading_runs_no_code_until_it_is_trusted(tmp_path, monkeypatch, theirs):
    folder = received(theirs, tmp_path / "run")
    with pytest.raises(ConfigurationError, match="names code outside the allowed classes.*tests.serve.nets.Net"):
        manyheads.load(folder.path)
    with pytest.raises(ConfigurationError, match="is not the name of a package"):
        manyheads.load(folder.path, trust=["not a package"])
    trained = manyheads.load(folder.path, trust=["tests"])
    assert trained.predict(torch.zeros(1, 3, 8, 8))[0].label in "012"


def test_evaluating_it_runs_what_is_trusted(command_here, here, theirs):
    received(theirs, here / "theirs")
    done = command_here("evaluate", "theirs", "trust=[tests]", "hydra.run.dir=evaluation")
    assert done.code == 0, done.err
    assert RunFolder(here / "evaluation").read_result()["metrics"]["val_loss"] == pytest.approx(
        theirs.read_result()["metrics"]["val_loss"]
    )


def test_any_class_of_the_config_counts_not_only_the_model_s(tmp_path, theirs):
    folder = received(theirs, tmp_path / "run", model={"_target_": "torch.nn.Identity"}, loss={"_target_": "os.system"})
    with pytest.raises(ConfigurationError, match=r"loss._target_=os.system"):
        manyheads.load(folder.path)


class Evil:
    def __reduce__(self):
        return (os.system, ("touch mark",))


@pytest.mark.parametrize("key", ["model", "optimizer"])
def test_weights_that_would_run_code(tmp_path, monkeypatch, theirs, key):
    monkeypatch.chdir(tmp_path)
    folder = received(theirs, tmp_path / "run")
    content = torch.load(folder.last_checkpoint, weights_only=True)
    for path in (folder.last_checkpoint, folder.best_checkpoint):
        path.unlink()
        torch.save({**content, key: Evil()}, path)
    with pytest.raises(ConfigurationError, match="damaged or not a checkpoint"):
        manyheads.load(folder.path, trust=["tests"])
    assert not (tmp_path / "mark").exists()


@pytest.mark.parametrize("name", ["model.json", "checkpoints/best.pt", "result.json"])
def test_links_out_of_the_folder(tmp_path, theirs, name):
    folder = received(theirs, tmp_path / "run")
    (tmp_path / "secret").write_text(json.dumps({"format": 1, "classes": ["secret"]}))
    (folder.path / name).unlink()
    (folder.path / name).symlink_to(tmp_path / "secret")
    with pytest.raises(ConfigurationError, match="outside"):
        manyheads.load(folder.path, trust=["tests"])


def test_a_file_of_weights_that_the_config_names_is_not_read(tmp_path, theirs):
    (tmp_path / "secret.pt").write_text("mine")
    for section, key in (("model", "pretrained"), ("checkpoint", "load"), ("checkpoint", "resume")):
        folder = received(theirs, tmp_path / key, **{section: {key: str(tmp_path / "secret.pt")}})
        with pytest.raises(ConfigurationError, match=f"{section}.{key}="):
            manyheads.load(folder.path, trust=["tests"])


def test_a_description_cannot_ask_for_more_than_there_is(tmp_path, theirs):
    folder = received(theirs, tmp_path / "run")
    content = json.loads(folder.description.read_text())
    folder.description.write_text(json.dumps({**content, "shape": [3, 10**9, 10**9]}))
    with pytest.raises(ConfigurationError, match="shape has another type"):
        manyheads.load(folder.path, trust=["tests"])


def test_names_of_classes_neither_steer_the_terminal_nor_compute(tmp_path, theirs):
    from manyheads.runner.serve.rank.predict_images import predict_files

    folder = received(theirs, tmp_path / "run")
    content = json.loads(folder.description.read_text())
    folder.description.write_text(json.dumps({**content, "classes": ["\x1b]0;owned\x07", "=HYPERLINK()", "a"]}))
    trained = manyheads.load(folder.path, trust=["tests"])
    assert "\x1b" not in "".join(trained.classes)
    Image.new("RGB", (8, 8)).save(tmp_path / "a.png")
    predict_files(trained, [str(tmp_path / "a.png")], tmp_path / "out.csv", device="cpu")
    assert ",=HYPERLINK" not in (text := (tmp_path / "out.csv").read_text())
    assert "'=HYPERLINK" in text


def test_the_table_follows_no_link(tmp_path, theirs):
    (tmp_path / "precious").mkdir()
    (tmp_path / "out").symlink_to(tmp_path / "precious")
    folder = received(theirs, tmp_path / "run")
    (folder.path / "model.safetensors").symlink_to(tmp_path / "precious" / "file")
    with pytest.raises(ConfigurationError, match="outside"):
        manyheads.load(folder.path, trust=["tests"])


def test_the_config_says_what_is_trusted_never(tmp_path, theirs):
    folder = received(theirs, tmp_path / "run")
    config = yaml.safe_load(folder.config.read_text())
    folder.config.write_text(yaml.safe_dump({**config, "trust": ["tests"]}))
    with pytest.raises(ConfigurationError, match="only the user can say what is trusted, not a config"):
        manyheads.load(folder.path)
