"""Hydra's files, which others may not redirect by links that they plant after the folder was checked."""

from unittest.mock import Mock

import pytest
from hydra.utils import get_class
from omegaconf import OmegaConf

from manyheads.runner.config.fresh_folder import BASIC_SWEEPER, FreshFolder
from manyheads.runner.errors import ConfigurationError, Ended

HYDRA = {
    "run": {"dir": "past"},
    "output_subdir": ".hydra",
    "overrides": {"hydra": ["hydra.run.dir=past"], "task": ["seed=2"]},
    "runtime": {"output_dir": "???"},
    "job_logging": {"handlers": {"file": {"class": "logging.FileHandler", "filename": "past/run.log"}}},
}


@pytest.fixture(params=["a folder", "a link"])
def begun(tmp_path, monkeypatch, request):
    """The callback and its config, once Hydra has called it for the start of a run, below a folder or a link."""
    (tmp_path / "disk").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "disk")
    monkeypatch.chdir(tmp_path / "disk")
    tmp_path = tmp_path / ("link" if request.param == "a link" else "disk")
    config = OmegaConf.create({"seed": 2, "hydra": HYDRA})
    callback = FreshFolder()
    callback.on_run_start(config)
    config.hydra.runtime.output_dir = str(tmp_path / "past")
    OmegaConf.set_readonly(config.hydra, True)
    return callback, config


def test_hydra_itself_writes_nothing(begun, tmp_path):
    callback, config = begun
    assert config.hydra.output_subdir is None
    callback.on_job_start(config)
    folder = tmp_path / "disk/past/.hydra"
    assert OmegaConf.load(folder / "config.yaml") == {"seed": 2}
    assert OmegaConf.load(folder / "hydra.yaml").hydra.output_subdir == ".hydra"
    assert OmegaConf.load(folder / "overrides.yaml") == ["seed=2"]


@pytest.mark.parametrize("name", [".hydra", ".hydra/config.yaml"])
def test_a_link_that_is_planted_meanwhile_is_not_followed(begun, tmp_path, name):
    callback, config = begun
    victim = tmp_path / "victim"
    victim.mkdir()
    (victim / "config.yaml").write_text("precious: true\n")
    link = tmp_path / "disk/past" / name
    link.parent.mkdir(exist_ok=True)
    link.symlink_to(victim / "config.yaml" if link.suffix else victim)
    with pytest.raises(Ended) as end:
        callback.on_job_start(config)
    assert "could point outside its folder" in str(end.value.error)
    assert (victim / "config.yaml").read_text() == "precious: true\n"
    assert [each.name for each in victim.iterdir()] == ["config.yaml"]


def test_a_log_is_not_written_through_a_link(begun, tmp_path):
    _, config = begun
    victim, log = tmp_path / "bashrc", tmp_path / "disk/past/run.log"
    victim.write_text("mine\n")
    log.symlink_to(victim)
    handler = dict(config.hydra.job_logging.handlers.file)
    open_log = get_class(handler.pop("class"))
    with pytest.raises(ConfigurationError, match="could point outside its folder"):
        open_log(**handler)
    log.unlink()
    open_log(**handler).close()
    assert log.read_text() == ""
    assert victim.read_text() == "mine\n"


def test_links_on_the_way_are_followed_once(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "scratch").mkdir()
    (tmp_path / "outputs").symlink_to("scratch")
    config = OmegaConf.create({"hydra": {**HYDRA, "run": {"dir": "outputs/past"}}})
    FreshFolder().on_run_start(config)
    assert config.hydra.run.dir == str(tmp_path / "scratch/past")


def test_the_description_of_a_sweep_is_not_written_through_a_link(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    victim = tmp_path / "victim"
    victim.write_text("mine\n")
    (tmp_path / "all").mkdir()
    (tmp_path / "all/multirun.yaml").symlink_to(victim)
    hydra = {**HYDRA, "sweep": {"dir": "all"}, "sweeper": {"_target_": BASIC_SWEEPER}}
    hydra["overrides"] = {"hydra": ["hydra.sweep.dir=all"], "task": []}
    config = OmegaConf.create({"hydra": hydra})
    FreshFolder().on_multirun_start(config)
    sweeper = get_class(config.hydra.sweeper._target_)(max_batch_size=None)
    sweeper.config, sweeper.hydra_context, sweeper.launcher = config, Mock(config_loader=Mock()), Mock()
    sweeper.launcher.launch.return_value = []
    with pytest.raises(ConfigurationError, match="could point outside its folder"):
        sweeper.sweep([])
    assert victim.read_text() == "mine\n"
    (tmp_path / "all/multirun.yaml").unlink()
    sweeper.sweep([])
    assert OmegaConf.load(tmp_path / "all/multirun.yaml").hydra.sweep.dir == "all"
