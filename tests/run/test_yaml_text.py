"""YAML is read as Hydra reads it; what is written means the same to Hydra, to other programs and to ourselves."""

import time

import pytest
import yaml
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

from manyheads.runner.run import yaml_text

WRITTEN = (
    *("1e-3", "1E5", "-1.5e+3", "1_000", "1_0.5", "12e", "0x1F", "017", "0b11", "1:30", "1:30.5", ".5", ".5e-3", "5."),
    *("nan", ".nan", ".NaN", "inf", ".inf", "-.INF", "yes", "no", "on", "True", "null", "~", "", "2026-01-31"),
    *("2026-01-31 12:00:00", "a: b", "- a", "# no", "'quoted'", '"quoted"', "@here", "%", "${seed}", "=", "<<"),
    *("several\nlines", " indented", "trailing ", "tab\there", "ä", "\u2028", "+1", "--", "e3", "1e", "1.e5"),
)


# libyaml accepts a tab within a plain text, which PyYAML's own parser refuses.
@pytest.mark.parametrize("text", [text for text in WRITTEN if "\t" not in text], ids=repr)
def test_it_is_read_as_by_hydra(text: str) -> None:
    try:
        expected = OmegaConf.to_container(OmegaConf.create(f"key: {text}\n"))
    except (yaml.YAMLError, OmegaConfBaseException):
        with pytest.raises(yaml_text.Error):
            yaml_text.parse(f"key: {text}\n")
    else:
        assert repr(yaml_text.parse(f"key: {text}\n")) == repr(expected)


VALUES = (*WRITTEN, 0.001, 1e-5, 1e22, 3, True, None, [1, "1e-3"], {"1e-3": {"2": [[]]}})


@pytest.mark.parametrize("value", VALUES, ids=repr)
def test_it_is_written_so_that_all_read_the_same(value: object) -> None:
    text = yaml_text.dump({"key": value})
    for found in (yaml_text.parse(text), OmegaConf.to_container(OmegaConf.create(text)), yaml.safe_load(text)):
        assert found == {"key": value}


def test_aliases_that_expand_without_end_are_refused() -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 6)]
    with pytest.raises(ValueError, match="more than 10000 values"):
        yaml_text.parse("\n".join(lines))
    with pytest.raises(ValueError, match="more than 10000 values"):
        yaml_text.parse("a: &a [*a]")


@pytest.mark.parametrize("end", ["", ".5"])
def test_a_number_in_base_60_does_not_take_for_ever(end):
    with pytest.raises(ValueError, match="a number of a hundred parts"):
        yaml_text.parse("zz: " + ":".join(["1"] * 400_000) + end)
    assert yaml_text.parse("zz: 1:1:1") == {"zz": 3661}


DEEP = {
    "lists that end": "[" * 40000 + "]" * 40000,  # of which libyaml's stack was full
    "lists that do not": "a: " + "[" * 500_000,
    "mappings": "{a: " * 20000,
    "in lines": "".join(" " * level + "a:\n" for level in range(200)),
    "in one line": "- " * 40000,
    "keys": "? - " * 20000,
}


@pytest.mark.parametrize("text", DEEP.values(), ids=DEEP)
def test_more_levels_than_anybody_writes_are_refused_at_once(text: str) -> None:
    began = time.process_time()
    with pytest.raises(ValueError, match="nested more than 100 levels deep"):
        yaml_text.parse(text)
    assert time.process_time() - began < 1  # libyaml alone takes a second for 20,000, and four times as long for twice


@pytest.mark.parametrize("text", ["[" * 100 + "]" * 100, "{a: [1, 2], b: [3, {c: 4}]}", "- [1]\n" * 200])
def test_other_levels_are_read(text: str) -> None:
    assert yaml_text.parse(text) == yaml.safe_load(text)


def test_texts_of_many_brackets_are_read() -> None:
    assert yaml_text.parse("a: '" + "[" * 500 + "'") == {"a": "[" * 500}
