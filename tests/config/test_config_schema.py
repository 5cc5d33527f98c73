"""The schema of the config says what the checks do: of every option, and of values that are wrong."""

import json
import math
from functools import cache

import pytest
import yaml
from jsonschema import Draft202012Validator

from manyheads.runner.config import config_schema
from manyheads.runner.config.config_schema import option_schema, schema_for
from manyheads.runner.config.lookup import CONF, NAMED, SECTIONS, options, read, read_option
from manyheads.runner.config.meanings import described
from manyheads.runner.config.run_rules import RULES
from manyheads.runner.errors import ConfigurationError
from manyheads.runner.option.declared import ENTRIES, GROUPS, declared_class
from manyheads.runner.option.rules import rule_for
from tests import in_process

EXPERIMENTS = sorted((CONF / "experiment").glob("*.yaml"))
# One of each kind, so that whatever a rule asks for, most of them are wrong.
VALUES = [None, True, -1, 0, 1, 2, 0.5, -0.5, 1.5, 10**9, math.inf, -math.inf, "", "auto", "none", "nonsense"]
VALUES += [
    "a b",
    "a/b",
    "1epoch",
    "0epochs",
    "20steps",
    "0steps",
    "90s",
    "0s",
    "1.5h",
    "2:3",
    "val_loss",
    "a.B",
    "text",
]
VALUES += ["user:secret@host", "http://user:secret@host/x", "http://host/x@y", [], ["a"], [1], [""], [[]], {}]
VALUES += [[{"_target_": "a.B"}], [{"match": "a", "until": 2}], [{"match": "a", "lr": 1}], [{"match": [], "lr": 1}]]
VALUES += [[{"match": "a"}], [{"match": "a", "lr": 1, "lr_factor": 2}], {"a": "max"}, {"a b": "max"}, {"a": 1}]


run_schema, file_schema = cache(config_schema.run_schema), cache(config_schema.file_schema)


def is_valid(schema, value):
    return Draft202012Validator(schema).is_valid(value)


def rules():
    """Every key of every option with its rule, by the name of the key."""
    for key, rule in RULES.items():
        yield key, rule
    for group in (*GROUPS, *ENTRIES):
        for name in options(group):
            content = read_option(group, name)
            for section in [content] if group in GROUPS else content.values():
                declares = declared_class(group, section)
                for key, default in section.items():
                    if (rule := rule_for(declares.all_rules(), key, default)) is not None:
                        yield f"{group}={name}.{key}", rule


@pytest.mark.parametrize("of", ["config", "experiment", *GROUPS, *NAMED, "parallel=fsdp", "logger=csv"])
def test_it_is_a_schema(of):
    schema = schema_for(of)
    Draft202012Validator.check_schema(schema)
    json.dumps(schema, allow_nan=False)


def test_the_schema_accepts_what_the_rule_accepts():
    unlike = [
        (key, rule.allowed, value)
        for key, rule in rules()
        for value in VALUES
        if is_valid(rule.schema, value) != rule.accepts(value)
    ]
    assert unlike == []


@pytest.mark.parametrize("group", [*GROUPS, *NAMED])
def test_every_option_of_ours_is_valid(group):
    for name in options(group):
        schema = option_schema(group, name, written=True)
        content = read(CONF / group / f"{name}.yaml")
        errors = [*Draft202012Validator(schema).iter_errors(content.get(group, content))]
        assert errors == [], name


@pytest.mark.parametrize("path", EXPERIMENTS, ids=lambda path: path.stem)
def test_every_experiment_of_ours_is_valid(path):
    assert [*Draft202012Validator(file_schema()).iter_errors(yaml.safe_load(path.read_text()))] == []


@pytest.mark.parametrize(
    "overrides",
    [
        (),
        ("parallel=fsdp", "launcher.nproc_per_node=2", "data.batch_size=64"),
        ("task=language_model", "model=gpt", "data=stdlib_text", "optimizer=adamw", "scheduler=wsd"),
        ("logger=[csv,tensorboard]", "metrics=[f1]", "callbacks=[predictions]"),
        ("model=custom", "model._target_=torch.nn.Flatten", "+model.start_dim=1"),
        ("parameters.groups=[{match: head, lr: 0.1}]", "trainer.max_time=8h", "checkpoint.every=100"),
    ],
    ids=" ".join,
)
def test_a_run_config_is_valid(overrides):
    config = in_process.config(*overrides)
    assert [*Draft202012Validator(run_schema()).iter_errors(config)] == []


@pytest.mark.parametrize(
    ("section", "key", "value"),
    [
        ("trainer", "epochs", 0),
        ("trainer", "epochs", "many"),
        ("trainer", "tta", "flop"),
        ("trainer", "deterministic", 1),
        ("trainer", "no_such_key", 1),
        ("optimizer", "lr", -1),
        ("optimizer", "betas", [0.9, 0.99]),
        ("parallel", "bucket_cap_mb", 25),
        ("checkpoint", "every", "2days"),
    ],
)
def test_a_wrong_run_config_is_refused_alike(section, key, value):
    config = in_process.config()
    config[section][key] = value
    assert not is_valid(run_schema(), config)
    with pytest.raises(ConfigurationError):
        in_process.config(f"++{section}.{key}={json.dumps(value).replace(' ', '')}")


def test_keys_say_what_they_mean_and_which_option_they_need():
    found = file_schema()["properties"]
    assert found["trainer"]["properties"]["clip_norm"]["description"].startswith("largest gradient norm")
    assert found["parallel"]["properties"]["reshard"]["description"].startswith("Needs parallel=fsdp")
    assert found["trainer"]["properties"]["epochs"]["default"] == "90 or max_steps"


def test_every_commented_key_has_its_meaning():
    """A comment that the schema lacks would be one that editors do not show."""
    schema = run_schema()
    for name in SECTIONS:
        commented = {
            each.key.partition(".")[2]
            for each in described(CONF / "config.yaml")
            if each.meaning and each.key.startswith(f"{name}.")
        }
        shown = {key for key, each in schema["properties"][name]["properties"].items() if each.get("description")}
        assert commented <= shown
