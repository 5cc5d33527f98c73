import math

import pytest
import yaml

from manyheads.runner.config.lookup import ABOUT, CONF, SECTIONS, options, read_option
from manyheads.runner.config.run_rules import RULES, rules_of
from manyheads.runner.option.declared import GROUPS, declared_class
from manyheads.runner.option.rules import (
    AUTO,
    BOOLEAN,
    NULL,
    TEXT,
    choice,
    either,
    list_of,
    number,
    rule_for,
    whole,
)

BASE = yaml.safe_load((CONF / "config.yaml").read_text())
DEFAULTS = [(section, key, value) for section in SECTIONS for key, value in BASE[section].items()]
DEFAULTS += [
    (group, key, value)
    for group in GROUPS
    for option in options(group)
    for key, value in read_option(group, option).items()
]


@pytest.mark.parametrize(
    ("rule", "accepted", "refused"),
    [
        (whole(1), [1, 10**9], [0, -1, 1.0, True, "1", None, [1]]),
        (whole(1, 50), [1, 50], [51]),
        (number(), [0, -1.5, 3], ["1", None, True, math.nan, math.inf, -math.inf]),
        (number(above=0, infinite=True), [1e-9, math.inf], [0, -math.inf, math.nan]),
        (number(at_least=0, below=1), [0, 0.99], [1, -0.01]),
        (choice("a", "b"), ["a", "b"], ["c", "", None, True, ["a"]]),
        (list_of(whole(0)), [[], [0, 1]], [[0, "1"], 0, "01", None]),
        (either(whole(1), AUTO), [1, "auto"], [0, "Auto"]),
        (BOOLEAN, [True, False], [0, 1, "true", None]),
        (TEXT, ["a"], ["", None, 1]),
        (NULL, [None], [0, "", "null", False]),
    ],
    ids=lambda value: value.allowed if hasattr(value, "allowed") else "",
)
def test_accepts(rule, accepted, refused):
    assert [value for value in accepted if not rule.accepts(value)] == []
    assert [value for value in refused if rule.accepts(value)] == []


@pytest.mark.parametrize(
    ("rule", "text"),
    [
        (whole(1), "an integer of at least 1"),
        (whole(1, 50), "an integer from 1 to 50"),
        (number(at_least=0, below=1), "a number of at least 0 and below 1"),
        (number(above=0, infinite=True), "a number above 0 or inf"),
        (either(whole(1), AUTO), "an integer of at least 1 or auto"),
        (choice("none", "fp16"), "none, fp16"),
    ],
)
def test_says_what_is_allowed(rule, text):
    assert rule.allowed == text


@pytest.mark.parametrize(
    ("value", "accepted"),
    [("1epoch", True), ("5epochs", True), (0, True), (100, True)]
    + [
        ("0epochs", False),
        ("epoch", False),
        ("1 epoch", False),
        (-1, False),
        (1.5, False),
        (True, False),
        (None, False),
    ],
)
def test_checkpoint_interval(value, accepted):
    assert RULES["checkpoint.every"].accepts(value) is accepted


@pytest.mark.parametrize(
    ("default", "accepted", "refused"),
    [
        (True, False, "yes"),
        (3, 4.5, "4"),
        (0.5, 1, None),
        ("text", "other", 1),
        ("text", "other", None),
    ],
)
def test_a_key_without_rule_wants_the_kind_of_its_default(default, accepted, refused):
    rule = rule_for({}, "unheard_of", default)
    assert rule is not None
    assert rule.accepts(accepted)
    assert not rule.accepts(refused)


def test_anything_goes_over_null_without_rule():
    assert rule_for({}, "unheard_of", None) is None


def test_null_is_allowed_only_where_it_is_the_default():
    assert rule_for({"root": TEXT}, "root", None).accepts(None)
    assert not rule_for({"root": TEXT}, "root", "data").accepts(None)
    assert "null" in rule_for({"root": TEXT}, "root", None).allowed
    assert "null" not in rule_for({"root": TEXT}, "root", "data").allowed


@pytest.mark.parametrize("target", ["nothing", "", 3, None])
def test_every_target_is_the_dotted_name_of_a_class(target):
    rule = rule_for({}, "_target_", "torch.optim.SGD")
    assert rule.accepts("torch.optim.AdamW")
    assert not rule.accepts(target)


def test_every_rule_is_of_a_key_that_exists():
    known = {f"{section}.{key}" for section, key, _ in DEFAULTS} | {"seed", *ABOUT}
    assert set(RULES) - known == set()


@pytest.mark.parametrize("group", GROUPS)
def test_every_rule_of_an_option_is_of_a_key_that_its_group_has(group):
    sections = [read_option(group, option) for option in options(group)]
    kinds = {kind for section in sections for kind in declared_class(group, section).__mro__}
    for kind in kinds:
        keys = {key for section in sections if issubclass(declared_class(group, section), kind) for key in section}
        assert set(vars(kind).get("rules", {})) - keys == set(), kind


def rules(section, own):
    """Those of a section whose option, if it is one, is ``own``."""
    return declared_class(section, own).all_rules() if section in GROUPS else rules_of(section)


@pytest.mark.parametrize(
    ("section", "option", "key", "value"),
    [(section, BASE[section], key, value) for section in SECTIONS for key, value in BASE[section].items()]
    + [
        (group, section, key, value)
        for group in GROUPS
        for option in options(group)
        for section in [read_option(group, option)]
        for key, value in section.items()
    ],
    ids=lambda value: "" if isinstance(value, dict) else str(value)[:40],
)
def test_every_default_obeys_its_rule(section, option, key, value):
    rule = rule_for(rules(section, option), key, value)
    assert value == "???" or rule is None or rule.accepts(value)
