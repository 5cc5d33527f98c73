"""The typed run config: its keys are those of conf/, it never changes, and run.yaml is its written form."""

import copy
from collections.abc import Mapping, Sequence
from dataclasses import FrozenInstanceError, fields
from typing import Any, get_args, get_origin, get_type_hints

import pytest
import yaml

from manyheads.runner.config.lookup import CONF, options, read_option
from manyheads.runner.errors import ConfigurationError
from manyheads.runner.option.declared import GROUPS, declared, declared_class
from manyheads.runner.option.run_config import FIXED, RunConfig
from manyheads.runner.run.run_folder import RunFolder
from tests.in_process import typed

BASE = yaml.safe_load((CONF / "config.yaml").read_text())
OPTIONS = [(group, option) for group in GROUPS for option in options(group)]


def fits(value: Any, kind: Any) -> bool:
    """Whether a default from YAML is of an annotated type."""
    if kind is Any:
        return True
    if get_origin(kind) in (Sequence, Mapping):
        return isinstance(value, get_origin(kind))
    if kinds := get_args(kind):
        return any(fits(value, each) for each in kinds)
    return type(value) is kind or (type(value) is int and kind is float)


@pytest.mark.parametrize("name", FIXED)
def test_a_section_of_every_run_has_the_keys_of_conf_in_their_order(name):
    assert [each.name for each in fields(FIXED[name])] == list(BASE[name])
    hints = get_type_hints(FIXED[name])
    unresolved = {"epochs"} if name == "trainer" else set()  # "90 or max_steps", of which freezing makes one of them
    values = {key: value for key, value in BASE[name].items() if key not in unresolved}
    assert {key: value for key, value in values.items() if not fits(value, hints[key])} == {}


def test_and_so_has_the_whole():
    known = {each.name for each in fields(RunConfig)} - {"written"}
    assert known == {*BASE, *GROUPS, "logger"} - {"defaults", "hydra"}


@pytest.mark.parametrize(("group", "option"), OPTIONS)
def test_what_an_option_reads_without_a_plain_case_is_in_its_file(group, option):
    section = read_option(group, option)
    kind = declared_class(group, section)
    assert {key for key in kind.fields if not hasattr(kind, key)} <= section.keys()


@pytest.mark.parametrize("group", GROUPS)
def test_what_it_reads_is_a_key_of_some_option(group):
    known = {option: read_option(group, option) for option in options(group)}
    keys = {key for section in known.values() for key in section}
    assert {key for section in known.values() for key in declared_class(group, section).fields} <= keys


def test_it_never_changes():
    run = typed("parallel=ddp")
    before = copy.deepcopy(run.written)
    with pytest.raises(FrozenInstanceError):
        run.trainer.epochs = 3  # type: ignore[misc]
    with pytest.raises(TypeError):
        run.parallel.section["timeout"] = 3  # type: ignore[index]
    other = run.changed(trainer={"epochs": 3}, parallel={"timeout": 5})
    assert (other.trainer.epochs, other.parallel.section["timeout"], other.data) == (3, 5, run.data)
    assert other.written["trainer"]["epochs"] == 3
    assert run.written == before


def test_digests_differ_where_values_do():
    run = typed("parallel=ddp", "logger=[csv,tensorboard]")
    own, others = run.digests(), run.changed(trainer={"epochs": 3}).digests()
    assert {"seed", "trainer.epochs", "logger.tensorboard._target_"} <= own.keys() == others.keys()
    assert {key for key in own if own[key] != others[key]} == {"trainer.epochs"}


def test_what_is_written_is_what_is_read(tmp_path):
    run, folder = typed("logger=[csv,tensorboard]", "metrics=[f1]"), RunFolder(tmp_path)
    folder.write_config(run.written)
    again = RunConfig.read(folder)
    assert again.written == run.written
    assert again.trainer == run.trainer
    assert [entry.key for entry in again.logger.values()] == [f"logger.{name}" for name in run.written["logger"]]


def test_a_config_of_another_version_is_refused():
    written = dict(typed().written)
    lacking = {key: value for key, value in written["trainer"].items() if key != "tta"}
    for section, message in (
        (lacking, r"trainer\.tta is missing"),
        ({**lacking, "tta": "none", "x": 1}, r"trainer\.x is"),
    ):
        with pytest.raises(ConfigurationError, match=message):
            RunConfig.of({**written, "trainer": section})
    with pytest.raises(ConfigurationError, match=r"seed: not set"):
        RunConfig.of({key: value for key, value in written.items() if key != "seed"})


def test_an_option_that_nobody_has_declared_carries_its_keys():
    option = declared("model", {"_target_": "fractions.Fraction", "name": "custom", "complete": 1, "instantiate": 2})
    assert (option.name, option.target, option.section["complete"]) == ("custom", "fractions.Fraction", 1)
    assert callable(option.instantiate)  # no key takes a method's place
    with pytest.raises(ConfigurationError, match=r"data\.batch_size is not set"):
        _ = declared("data", {"_target_": "my.Data", "name": "mine"}).batch_size
