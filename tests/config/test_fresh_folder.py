"""Hydra's files, which others may not redirect by links that they plant after the folder was checked."""

import pytest
from omegaconf import OmegaConf

from manyheads.runner.config.fresh_folder import FreshFolder
from manyheads.runner.errors import Ended

HYDRA = {
    "run": {"dir": "past"},
    "output_subdir": ".hydra",
    "overrides": {"hydra": ["hydra.run.dir=past"], "task": ["seed=2"]},
    "runtime": {"output_dir": "???"},
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
