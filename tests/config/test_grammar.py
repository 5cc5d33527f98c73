"""Whatever Hydra's users type: accepted with the value that Hydra gives it, or refused in one sentence."""

from contextlib import suppress

import pytest
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import HydraException
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from manyheads.runner.config.command_line import CommandLine
from manyheads.runner.config.fresh_folder import named_folder
from manyheads.runner.config.hydra_errors import explained
from manyheads.runner.config.quoting import readable
from manyheads.runner.errors import ConfigurationError
from tests import in_process
from tests.conftest import ROOT

# The terminals and rules of OverrideLexer.g4 and OverrideParser.g4, and characters that are in none.
IDS = st.sampled_from(["a", "lr", "_x", "foo-bar_10", "épochs", "my photos"])
NUMBERS = st.sampled_from(["0", "-20", "1_000", "3.14", "1e-1", ".5", "-inf", "NaN", "10e3", "01"])
WORDS = st.sampled_from(["true", "FALSE", "null", "Null", "yes"])
ESCAPED = st.sampled_from([r"\\", r"\(", r"\,", r"\ ", r"\=", r"\{", r"\n", "\\"])
OTHER = st.sampled_from([*"/-+.$%*@?|:= \t#'\"()[]{},;&~!<>^`", "\n", "ü", "数", "\0", "\u202e", "😀"])
DEEP = st.sampled_from(["${seed}", "${trainer.epochs}", "${oc.env:NOT_SET}", "${oc.env:NOT_SET,3}", "${", "${a:${b}}"])
TEXT = st.lists(st.one_of(IDS, NUMBERS, WORDS, ESCAPED, OTHER, DEEP), max_size=5).map("".join)
QUOTED = st.builds(lambda quote, text: f"{quote}{text}{quote}", st.sampled_from("'\""), TEXT)
PRIMITIVE = st.one_of(TEXT, QUOTED, NUMBERS, WORDS, DEEP)
FUNCTIONS = ["int", "str", "bool", "float", "choice", "range", "interval", "tag", "sort", "shuffle", "glob", "nothing"]


def _nested(element):
    several = st.lists(element, max_size=3)
    pairs = st.lists(st.builds("{}:{}".format, st.one_of(IDS, TEXT), element), max_size=2)
    named = st.builds("{}={}".format, st.sampled_from(["start", "stop", "reverse", "exclude"]), element)
    arguments = st.lists(st.one_of(element, named), max_size=3)
    return st.one_of(
        several.map(lambda items: f"[{','.join(items)}]"),
        pairs.map(lambda items: f"{{{','.join(items)}}}"),
        st.builds(lambda name, items: f"{name}({','.join(items)})", st.sampled_from(FUNCTIONS), arguments),
    )


ELEMENT = st.recursive(PRIMITIVE, _nested, max_leaves=6)
VALUE = st.lists(ELEMENT, min_size=1, max_size=3).map(",".join)
GROUPS_AND_KEYS = st.sampled_from(
    ["trainer.epochs", "notes", "tags", "optimizer.lr", "model", "data", "checkpoint.load", "metrics", "loss.weight"]
    + [
        "parallel",
        "hydra.run.dir",
        "hydra/launcher",
        "hydra.job.chdir",
        "hydra.job.name",
        "foo",
        "a.b.c",
        "model@x",
        "",
    ]
    + ["optimizer@_global_", "trainer", "seed", "hydra.verbose", "1.a", "$x", ":", "a:b", "model/small_cnn"]
)
SIGNS = st.sampled_from(["", "", "", "+", "++", "~", "+++", "@", " "])
OVERRIDE = st.one_of(
    st.builds("{}{}={}".format, SIGNS, GROUPS_AND_KEYS, VALUE),
    st.builds("{}{}".format, SIGNS, GROUPS_AND_KEYS),
    st.builds("{}={}".format, TEXT, VALUE),
)
OFTEN = settings(deadline=None, suppress_health_check=list(HealthCheck), derandomize=True, database=None)


def hydras(override: str) -> object:
    """The override as Hydra parses it; None if it refuses it."""
    try:
        return OverridesParser.create().parse_override(override)
    except HydraException:
        return None


@settings(OFTEN, max_examples=150)
@given(OVERRIDE)
def test_what_hydra_reads_keeps_its_meaning(override):
    if hydras(override) is not None:
        assert readable(override) == override
    elif readable(override) != override:
        read, (key, _, text) = hydras(readable(override)), override.partition("=")
        assert read.key_or_group == key.lstrip("+~").partition("@")[0]
        assert read.value() == text.strip()


@settings(OFTEN, max_examples=20)
@given(st.lists(OVERRIDE, min_size=1, max_size=2))
def test_nothing_that_is_typed_ends_in_a_traceback(overrides):
    _refused_or_accepted(overrides)


@pytest.mark.tail
@settings(OFTEN, max_examples=2000)
@given(st.lists(OVERRIDE, min_size=1, max_size=2))
def test_nothing_of_much_more_ends_in_a_traceback(overrides):
    _refused_or_accepted(overrides)


def _refused_or_accepted(overrides: list[str]) -> None:
    with suppress(ConfigurationError):  # anything else is a failure
        line = CommandLine(tuple(overrides), ROOT)
        named_folder(line.overrides)
        with explained(line):
            in_process.config(*line.overrides)
