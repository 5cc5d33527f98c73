"""Hydra with a memory: what it gives is what Hydra composes anew."""

from pathlib import Path
from typing import Any

import pytest
from hydra import initialize_config_dir
from hydra._internal.config_loader_impl import ConfigLoaderImpl
from hydra.core.global_hydra import GlobalHydra
from hydra.errors import ConfigCompositionException
from hydra.types import RunMode
from omegaconf import OmegaConf

from manyheads.runner.config.composing import Compositions, RememberingLoader
from manyheads.runner.config.hydra_version import VERSION_BASE
from manyheads.runner.config.lookup import CONF
from manyheads.runner.option.declared import ENTRIES, GROUPS
from tests import composing
from tests.tail import tail

VALUES = ["seed=7", "+loss.weight=[1,2]", "trainer.epochs=3", "~trainer.log_every", "hydra.run.dir=x"]
OPTIONS = [
    (group, path.stem) for group in (*GROUPS, *ENTRIES, "experiment") for path in sorted((CONF / group).glob("*.yaml"))
]
LAST = dict(OPTIONS)  # one of each group


@pytest.fixture(autouse=True)
def hydras_own(monkeypatch):
    """Not the tests' memory."""
    monkeypatch.setattr(ConfigLoaderImpl, "_load_configuration_impl", composing._compose)


def outcome(loader: ConfigLoaderImpl, overrides: list[str]) -> tuple[Any, ...]:
    """The config with Hydra's own part, or the error."""
    try:
        config = loader.load_configuration("config", overrides, RunMode.RUN)
    except Exception as error:
        return str(error), repr(error.__cause__)
    return OmegaConf.to_yaml(config), OmegaConf.is_struct(config), OmegaConf.is_readonly(config.hydra)


def outcomes(*commands: list[str]) -> tuple[list[tuple[Any, ...]], list[tuple[Any, ...]]]:
    """Of a loader with a memory, and of Hydra's own."""
    with initialize_config_dir(str(CONF), job_name="train", **VERSION_BASE):
        plain = GlobalHydra.instance().config_loader()
        assert isinstance(plain, ConfigLoaderImpl)
        remembering = RememberingLoader(plain)
        return [outcome(remembering, each) for each in commands], [outcome(plain, each) for each in commands]


@pytest.mark.parametrize(
    "chosen", [LAST, *(tail(dict([each])) for each in OPTIONS)], ids=lambda chosen: " ".join(chosen)
)
def test_each_option_with_values_is_what_hydra_composes(chosen):
    options = [f"{group}=[{name}]" if group in ENTRIES else f"{group}={name}" for group, name in chosen.items()]
    remembered, composed = outcomes([*options, *VALUES], [*VALUES[::-1], *options, "seed=8"])
    assert remembered == composed
    assert "hydra" in composed[0][0], composed


@pytest.mark.parametrize(
    "overrides",
    [
        ["optimizer=adamw", "optimizer.lr=0.3", "optimizer.lr=0.4"],
        ["model=my_own", "model._target_=a.b"],
        tail(["experiment=debug", "data=custom", "data._target_=a.b"]),
        tail(["~experiment", "~optional"]),
        ["trainer.epoch=3"],
        tail(["+trainer.epochs=3"]),
        ["model={width: 3}"],
        ["trainer.epochs=1,2"],
        tail(["seed=["]),
        ["hydra.job.name=other", "hydra.job.env_copy=[HOME]", "name=x"],
        ["hydra/job_logging=none", "data.root=${hydra:runtime.cwd}"],
    ],
    ids=" ".join,
)
def test_so_are_odd_overrides_and_mistakes(overrides):
    remembered, composed = outcomes(overrides, ["seed=5", *overrides])
    assert remembered == composed


def test_options_in_a_folder_of_the_users_own_are_options(tmp_path: Path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "first.yaml").write_text("a: 1\n")
    search = f"hydra.searchpath=['file://{tmp_path}']"
    remembered, composed = outcomes([search, "+mine=first", "mine.a=2", "seed=3"], ["+mine=first"])
    assert remembered == composed
    assert "a: 2" in composed[0][0]


def test_jobs_with_the_same_options_are_composed_once():
    asked: list[list[str]] = []

    def compose(loader: ConfigLoaderImpl, name: str | None, overrides: list[str], **how: Any) -> Any:
        asked.append(overrides)
        return composing._compose(loader, name, overrides, **how)

    with initialize_config_dir(str(CONF), job_name="train", **VERSION_BASE):
        loader = RememberingLoader(GlobalHydra.instance().config_loader())  # type: ignore[arg-type]
        loader._compositions = Compositions(compose)
        jobs = [[f"seed={seed}", f"model={model}"] for seed in range(10) for model in ("mlp", "small_cnn")]
        found = [loader.load_configuration("config", each, RunMode.RUN) for each in jobs]
    assert asked == [["model=mlp"], ["model=small_cnn"]]
    assert [(each.seed, each.model.name) for each in found[:3]] == [(0, "mlp"), (0, "small_cnn"), (1, "mlp")]


def test_what_is_composed_without_a_look_at_it_is_refused_where_that_is_asked_for():
    overrides = ["model=mlp,small_cnn"]
    with initialize_config_dir(str(CONF), job_name="train", **VERSION_BASE):
        loader = RememberingLoader(GlobalHydra.instance().config_loader())  # type: ignore[arg-type]
        loader.load_configuration("config", overrides, RunMode.RUN, validate_sweep_overrides=False)
        with pytest.raises(ConfigCompositionException, match="Ambiguous value"):
            loader.load_configuration("config", overrides, RunMode.RUN)
