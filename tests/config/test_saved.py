"""A saved run config under new overrides: composed by Hydra for real, as ``run.py --config-path`` does."""

import pytest
import yaml
from hydra import compose
from omegaconf import OmegaConf

from manyheads.runner.config.hydra_version import composing_from_conf
from manyheads.runner.config.lookup import options, read_option
from manyheads.runner.config.saved import NAME, read_saved, register_options
from manyheads.runner.config.schema import check
from manyheads.runner.errors import ConfigurationError
from manyheads.runner.option.declared import GROUPS
from manyheads.runner.run import seal
from tests.in_process import config
from tests.tail import tailed

EVERY_OPTION = [(group, option) for group in GROUPS for option in options(group)]
FIRST_OPTIONS = [(group, options(group)[0]) for group in GROUPS]


def over(saved, *overrides):
    """The run config that ``overrides`` make of the saved one."""
    register_options(saved, chosen={override.partition("=")[0] for override in overrides})
    with composing_from_conf():
        return check(compose(NAME, list(overrides)))


@pytest.mark.parametrize(
    "typed", [(), ("parallel=ddp", "trainer.device=cpu"), ("model=custom", "model._target_=a.B", "+model.width=2")]
)
def test_without_overrides_it_stays_the_same(typed):
    saved = config(*typed)
    assert over(saved) == saved


@pytest.mark.parametrize(("group", "option"), tailed(EVERY_OPTION, always=FIRST_OPTIONS))
def test_an_option_is_looked_up(group, option):
    expected = read_option(group, option)
    if missing := [key for key, value in expected.items() if value == "???"]:
        with pytest.raises(ConfigurationError, match=f"^{group}.{missing[0]} is not set"):
            over(config(), f"{group}={option}")
    else:
        assert over(config(), f"{group}={option}")[group] == expected


def test_keys_of_a_new_option_can_be_set():
    changed = over(config("optimizer=sgd"), "optimizer=adamw", "optimizer.lr=0.5")
    assert (changed["optimizer"]["name"], changed["optimizer"]["lr"]) == ("adamw", 0.5)


def test_a_new_strategy_brings_its_launcher_which_takes_keys():
    changed = over(config(), "parallel=ddp", "launcher.nproc_per_node=3")
    assert changed["launcher"] == {**read_option("launcher", "spawn"), "nproc_per_node": 3}


def test_a_strategy_of_one_process_does_not_keep_the_ranks_of_another():
    assert over(config("parallel=ddp"), "parallel=single")["launcher"]["name"] == "inline"


def test_unless_the_launcher_was_named_too():
    assert over(config(), "parallel=ddp", "launcher=torchrun")["launcher"]["name"] == "torchrun"


def test_experiments_are_not_laid_over_it_again():
    saved = config("trainer.epochs=3", "optimizer.lr=0.5")  # digits_quick has other values
    assert over(saved)["trainer"]["epochs"] == 3
    assert over(saved)["optimizer"]["lr"] == 0.5


def test_what_an_older_config_lacks_gets_its_default_and_can_be_set():
    saved = config()
    del saved["trainer"]["on_nan"], saved["checkpoint"], saved["seed"], saved["launcher"]["timeout"]
    assert over(saved) == config()
    assert over(saved, "trainer.on_nan=skip")["trainer"]["on_nan"] == "skip"


def test_a_key_that_is_none_is_refused():
    with pytest.raises(ConfigurationError, match="^trust is not a key"):
        over({**config(), "trust": ["a"]})


def test_its_hydra_section_counts_for_nothing():
    evil = {"callbacks": {"x": {"_target_": "os.system", "command": "true"}}}
    register_options({**config(), "hydra": evil}, chosen=set())
    with composing_from_conf():
        composed = compose(NAME, return_hydra_config=True)
    assert "x" not in composed.hydra.callbacks


def test_a_whole_run_config_is_read(tmp_path):
    (tmp_path / "run.yaml").write_text(yaml.safe_dump(config()))
    assert read_saved(tmp_path / "run.yaml") == (config(), False)
    seal.record(tmp_path, {"run.yaml": (tmp_path / "run.yaml").read_bytes()})
    assert read_saved(tmp_path / "run.yaml") == (config(), True)


@pytest.mark.parametrize(
    "content",
    [
        None,
        "a: 1",
        "defaults: [model: small_cnn]",
        OmegaConf.to_yaml({"seed": 1}),
        yaml.safe_dump({**config(), "defaults": []}),
        yaml.safe_dump({**config(), "trainer": 5}),
    ],
)
def test_anything_else_is_left_to_hydra(tmp_path, content):
    if content is not None:
        (tmp_path / "config.yaml").write_text(content)
    assert read_saved(tmp_path / "config.yaml") is None


def test_one_that_cannot_be_read_is_refused_unless_it_is_in_a_folder_of_ones_own(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    (tmp_path / "config.yaml").write_text("[1")
    with pytest.raises(ConfigurationError, match=r"config\.yaml"):
        read_saved(tmp_path / "config.yaml")
    seal.trust(tmp_path, None)
    assert read_saved(tmp_path / "config.yaml") is None
