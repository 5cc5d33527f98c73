"""What options of the group logger declare."""

import inspect

import pytest

from manyheads.runner.config.lookup import options, read_option
from manyheads.runner.errors import ConfigurationError, Unavailable
from manyheads.runner.logger.tracker import Tracker
from manyheads.runner.option.declared import declared
from manyheads.runner.option.locate import locate
from manyheads.runner.option.tree import OPTION, TARGET
from tests.callbacks.tracking import NAME
from tests.in_process import config

ENTRIES = {name: entry for option in options("logger") for name, entry in read_option("logger", option).items()}


@pytest.mark.parametrize("name", ENTRIES)
def test_its_keys_are_what_its_class_takes(name):
    entry, declares = ENTRIES[name], declared("logger", ENTRIES[name])
    kind = locate("logger", entry[TARGET])
    own = {key: value for key, value in entry.items() if key not in (TARGET, OPTION)}
    taken = inspect.signature(kind).parameters
    assert own == {key: parameter.default for key, parameter in taken.items()}
    assert declares.publishes == issubclass(kind, Tracker)
    rules = {key: rule for key, rule in declares.all_rules().items() if key in own or key != "checkpoint"}
    assert {*rules} <= own.keys()
    for key, rule in rules.items():
        assert own[key] is None or rule.accepts(own[key])


def test_what_is_not_installed_is_told_before_anything_starts():
    with pytest.raises(Unavailable, match=r"logger\.kept: the package no_such_package is not installed: pip install"):
        config(NAME, "+logger.kept._option_=tests.callbacks.tracking.Elsewhere", "+logger.kept.place=x")


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("logger.mlflow.tracking_uri=http://me:pw@host", "without user and password"),
        ("logger.mlflow.checkpoint=all", "Allowed: none, best, last"),
        ("+logger.mlflow.uri=x", "logger.mlflow.uri is not a key of the run config"),
        ("logger.mlflow.experiment=''", "Allowed: text"),
    ],
)
def test_mistakes_name_the_key(override, message):
    with pytest.raises(ConfigurationError, match=message):
        config("logger=[tensorboard,mlflow]", override)
