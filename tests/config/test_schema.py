import re

import pytest
import yaml
from omegaconf import OmegaConf

from manyheads.runner.config.lookup import (
    ABOUT,
    CONF,
    NAMED,
    SECTIONS,
    known_keys,
    option_of,
    options,
    read_option,
    unknown_key,
)
from manyheads.runner.config.schema import check
from manyheads.runner.errors import ConfigurationError
from manyheads.runner.option.declared import GROUPS
from manyheads.runner.wording import nearest
from tests.composing import composed

EVERY_OPTION = [(group, option) for group in GROUPS for option in options(group)]


def saved(*overrides):
    """A config as .hydra/config.yaml gives it back: plain, its groups forgotten."""
    return OmegaConf.create(OmegaConf.to_yaml(composed(*overrides)))


def test_the_default_is_complete_and_plain():
    config = check(composed())
    assert set(config) == {"seed", *ABOUT, *SECTIONS, *GROUPS, *NAMED}
    assert yaml.safe_load(yaml.safe_dump(config)) == config
    assert all(config[group]["name"] and config[group]["_target_"] for group in GROUPS)


def test_the_composed_config_stays_as_it_is():
    config = saved()
    before = OmegaConf.to_yaml(config)
    check(config)
    assert OmegaConf.to_yaml(config) == before


def test_references_to_other_keys_are_resolved():
    assert check(composed("optimizer.base_batch_size=${data.batch_size}"))["optimizer"]["base_batch_size"] == 64


def test_an_option_has_the_keys_of_those_that_it_builds_on(tmp_path):
    (tmp_path / "precision").mkdir()
    (tmp_path / "precision" / "mine.yaml").write_text("defaults: [amp, _self_]\nname: mine\nlevel: O2\n")
    expected = {**read_option("precision", "amp"), "name": "mine", "level": "O2"}
    assert read_option("precision", "mine", (CONF, tmp_path)) == expected


def test_options_that_build_on_each_other_are_read_once(tmp_path):
    (tmp_path / "model").mkdir()
    for name, other in (("a", "b"), ("b", "a")):
        (tmp_path / "model" / f"{name}.yaml").write_text(f"defaults: [{other}]\nname: {name}\n{name}: 1\n")
    assert read_option("model", "a", (CONF, tmp_path)) == {"name": "a", "a": 1, "b": 1}


@pytest.mark.parametrize("group", GROUPS)
def test_every_group_is_a_folder_with_options(group):
    assert options(group) == sorted(path.stem for path in (CONF / group).iterdir())


def test_every_folder_is_a_group():
    assert {path.name for path in CONF.iterdir() if path.is_dir()} == {*GROUPS, *NAMED, "tuned", "experiment"}


def test_what_an_older_config_lacks_gets_its_default():
    config = saved()
    del config.trainer.on_nan
    del config.seed
    del config.checkpoint
    checked = check(config)
    base = yaml.safe_load((CONF / "config.yaml").read_text())
    assert checked["trainer"]["on_nan"] == base["trainer"]["on_nan"]
    assert (checked["seed"], checked["checkpoint"]) == (base["seed"], base["checkpoint"])


@pytest.mark.parametrize("group", ["model", "data", "optimizer", "loss"])
def test_a_class_of_the_users_own_may_have_any_key(group):
    option = [] if group == "loss" else [f"{group}=custom"]
    config = check(composed(*option, f"{group}._target_=my_package.Thing", f"+{group}.anything=3"))
    assert config[group]["anything"] == 3


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["+trainer.foo=1"], r"^trainer\.foo is not a key .* Allowed: trainer\.epochs, "),
        (["+trainer.epoch=1"], r"Did you mean trainer\.epochs\?"),
        (["+foo.bar=1"], r"^foo is not a key .* Allowed: seed, loss, "),
        (["+optimizer.betas=[0.9,0.99]"], r"^optimizer\.betas is a key of optimizer=adam, optimizer=adamw, .* only\."),
        (["name=12"], r"^name=12 is not allowed\. Allowed: text or null\."),
        (["tags=baseline"], r'^tags="baseline" is not allowed\. Allowed: a list, each text\.'),
        (["trainer.epochs=many"], r'^trainer\.epochs="many" is not allowed\. Allowed: an integer of at least 1 or'),
        (
            ["trainer.epochs=0 or max_steps"],
            r"^trainer\.epochs=\"0 or max_steps\" is not allowed\. Allowed: an integer",
        ),
        (
            ["trainer.max_steps='3'"],
            r'^trainer\.max_steps="3" is not allowed\. 3 is a text here: leave out the quotes, or',
        ),
        (["trainer.max_steps=${oc.env:NOT_SET,3}"], r"read variables as \$\{oc\.decode:\$\{oc\.env:NAME\}\}\."),
        (["trainer.deterministic=1"], r"^trainer\.deterministic=1 is not allowed\. Allowed: true or false\."),
        (["data=imagefolder"], r"^data\.root is not set, and has no default\. Set it: data\.root=<value>\."),
        (["model=custom"], r"^model\._target_ is not set"),
        (["data=mnist", "data.root=${now:%S}"], r"^data\.root=\$\{now:%S\}: .* may not depend on"),
        (["data=mnist", "data.root=/x/${hydra:job.num}"], r"^data\.root=/x/\$\{hydra:job.num\}: .* may not depend on"),
        (["parallel.device_ids=[0,'${now:%S}']", "parallel=dp"], r"^parallel\.device_ids\.1=\$\{now:%S\}"),
        (["data=mnist", "data.root=${nothing.there}"], r"^data\.root: .*nothing.* Set data\.root to a plain value"),
        (["trainer=3"], r"^trainer=3: allowed are keys below trainer: epochs, "),
        (["loss=null"], r"^loss=null: allowed are keys below loss"),
        (["model.name=null"], r"^model\.name is not set: choose model=<airbench\|"),
        (["~precision"], r"^precision=null is not an option\. Allowed: amp, "),
    ],
)
def test_is_refused(overrides, message):
    with pytest.raises(ConfigurationError, match=message):
        check(composed(*overrides))


@pytest.mark.parametrize(
    ("option", "keys"),
    [
        ("data=digits", ["data.root=/x", "data.on_corrupt=skip"]),
        ("data=synthetic", ["data.root=/x", "data.on_corrupt=skip", "data.fingerprint=none"]),
        ("data=mnist", ["data.on_corrupt=skip"]),
        ("parallel=single", ["parallel.backend=gloo", "parallel.timeout=9"]),
        ("parallel=dp", ["parallel.backend=gloo", "parallel.timeout=9"]),
        ("parallel=horovod", ["parallel.backend=gloo"]),
        ("parallel=apex", ["parallel.backend=nccl"]),
    ],
)
def test_a_key_that_would_do_nothing_is_none_of_the_option_s(option, keys):
    for key in keys:
        name = re.escape(key.partition("=")[0])
        with pytest.raises(ConfigurationError, match=rf"^{name} is a key of .* only\. Allowed: "):
            check(composed(option, f"+{key}"))


@pytest.mark.parametrize(
    ("key", "hint"),
    [
        ("trainer.epoch", "Did you mean trainer.epochs?"),
        ("trainr.epochs", "Did you mean trainer.epochs?"),
        ("epochs", "Did you mean trainer.epochs?"),
        ("batch_size", "Did you mean data.batch_size?"),
        ("trainer.batch_size", "Did you mean data.batch_size?"),
        ("lr", "Did you mean optimizer.lr?"),
        ("optimizer.lrr", "Did you mean optimizer.lr?"),
        ("model.widht", "model.width (of model=gpt, model=mlp, model=small_cnn) or model.widths (of model=airbench)?"),
        ("paralel", "Did you mean parallel?"),
        ("optimizer.nesterov", "is a key of optimizer=fused_sgd, optimizer=sgd only."),
        ("trainer.qqqq", "trainer.qqqq is not a key of the run config."),
    ],
)
def test_an_unknown_key_gets_a_hint(key, hint):
    assert unknown_key(key).endswith(hint)


def test_every_key_of_every_option_is_known():
    for group, option in EVERY_OPTION:
        assert {f"{group}.{key}" for key in read_option(group, option)} <= set(known_keys())


@pytest.mark.parametrize(
    ("name", "hint"), [("dpp", " Did you mean ddp or dp?"), ("DDP", " Did you mean ddp?"), ("zzzzzz", "")]
)
def test_nearest(name, hint):
    assert nearest(name, ["dp", "ddp", "single"]) in (hint, hint.replace("ddp or dp", "dp or ddp"))


def test_an_option_is_known_by_its_class_whatever_its_name():
    section = {**read_option("model", "torchvision"), "name": "convnext_base"}
    assert option_of("model", section)["_target_"] == section["_target_"]
    assert option_of("model", {"_target_": "my_package.Net", "name": "custom"}) is None
