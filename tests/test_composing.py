"""The memory of the tests' Hydra: what it gives is what Hydra composes anew."""

import pytest
from hydra import compose
from hydra._internal.config_loader_impl import ConfigLoaderImpl
from omegaconf import OmegaConf

from manyheads.runner.config.hydra_version import composing_from_conf
from tests import composing


def outcome(overrides: list[str]) -> tuple[str, object]:
    """The config with Hydra's own part, or the error."""
    with composing_from_conf():
        try:
            config = compose("config", overrides, return_hydra_config=True)
        except Exception as error:
            return str(error), repr(error.__cause__)
        return OmegaConf.to_yaml(config), (OmegaConf.is_struct(config), OmegaConf.is_readonly(config.hydra))


@pytest.mark.parametrize(
    "overrides",
    [
        ["optimizer=adamw", "optimizer.lr=0.3", "+loss.weight=[1,2]", "hydra.run.dir=x", "~trainer.max_steps"],
        ["experiment=debug", "data=custom", "data._target_=a.b", "seed=3"],
        ["trainer.epoch=3"],
        ["trainer.epochs=1,2"],
    ],
    ids=" ".join,
)
def test_it_changes_nothing(monkeypatch, overrides):
    remembered = [outcome(overrides) for _ in range(2)]
    monkeypatch.setattr(ConfigLoaderImpl, "_load_configuration_impl", composing._compose)
    assert remembered == [outcome(overrides)] * 2
