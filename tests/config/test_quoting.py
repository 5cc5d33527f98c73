"""Values that Hydra's grammar reads only in quotes."""

import shlex
from pathlib import Path

import pytest
from hydra.core.override_parser.overrides_parser import OverridesParser

from manyheads.runner.config.command_line import CommandLine
from manyheads.runner.config.fresh_folder import named_folder
from manyheads.runner.config.hydra_errors import explained
from manyheads.runner.config.quoting import quoted, readable, remedy
from manyheads.runner.errors import ConfigurationError
from tests import in_process
from tests.conftest import ROOT

TEXTS = [
    "runs/epoch=3-step=100.ckpt",
    "/data/my photos (1)",
    "photos (1)",
    "best(2).pt",
    "it's",
    "a#b",
    "ünïcödé",
    "~/photos",
    "pbs.12345[7].server",
    "a ; b & c < d > e ^ f ! ` g",
    'he said "yes"',
    "two\nlines",
    "数据/照片",
    "run-${seed}=x",
]


def value(override: str) -> object:
    return OverridesParser.create().parse_override(override).value()


@pytest.mark.parametrize("text", TEXTS)
def test_what_can_only_be_a_text_needs_no_quotes(text):
    assert value(readable(f"notes={text}")) == text
    assert CommandLine((f"++notes={text}", "-m")).arguments == (f"++notes={quoted(text)}", "-m")


@pytest.mark.parametrize(
    "override",
    [
        *("a=1", "a=b,c", "a=[b,c]", "a={b:c}", "a='b=c'", "a=choice(1,2)", "a=${b}", "a=b\\=c", "a=x y", "~a", "a="),
        *("a=b,c=d", "a=[b=c]", "a={b=c}", "a='b", "a=chioce(1)", "a=int(x", "a==b", "a=b\\c=d", "ä=b", "a", "=", ""),
    ],
)
def test_whatever_hydra_reads_or_could_be_meant_otherwise_is_left_to_it(override):
    assert readable(override) == override


@pytest.mark.parametrize(
    ("override", "said"),
    [
        ("notes=a, it's", ['Hydra cannot read "\'". Over', "\"notes='a, it\\'s'\"", "\nnotes=a, it's\n           ^"]),
        ("notes=a,b=c", ["mismatched input '=' expecting <EOF>. Overrides are", "To set a text", "\"notes='a,b=c'\""]),
        ("tags=[a=b]", ["Close every bracket, and write texts with special characters in quotes, such as ['a=b', "]),
        ("trainer.epochs=int(many)", ["ValueError while evaluating 'int(many)': invalid literal for int()"]),
    ],
)
def test_the_error_names_the_quotes_that_help_and_where(override, said):
    with pytest.raises(ConfigurationError) as error, explained(CommandLine((override,), ROOT)):
        in_process.config(*CommandLine((override,), ROOT).overrides)
    for fragment in said:
        assert fragment in str(error.value)


@pytest.mark.parametrize("text", ["a, it's", 'a, "b"', "a,$b", "a,`b`", "a, b\\\\", "a, !b'", "a,b=c"])
def test_the_quotes_are_those_that_a_shell_and_hydra_take(text):
    typed = remedy(f"notes={text}").partition("quotes: ")[2]
    (override,) = shlex.split(typed)
    assert value(override) == text


def test_a_folder_of_any_name_is_found_among_the_overrides():
    for name in ("runs/a=1", "it's", "a b (1)", "plain"):
        assert named_folder(["seed=1", f"hydra.run.dir={name}"]) == Path(name)
        assert named_folder([f"hydra.run.dir={quoted(name)}"]) == Path(name)
    assert named_folder(["seed=1"]) is None


def test_a_key_of_a_mapping_that_an_option_leaves_empty_is_added():
    typed = (
        "data.columns.price=number",
        "task.metrics.f=max",
        "trainer.epochs=2",
        "+data.columns.x=ignore",
        "model=mlp",
    )
    assert CommandLine(typed).overrides == ("++data.columns.price=number", "++task.metrics.f=max", *typed[2:])
    assert CommandLine(("data.columns={a b: ignore}",)).overrides == ("++data.columns={a b: ignore}",)
