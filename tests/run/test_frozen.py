"""Reading the YAML files of many runs: in parts, each parsed once, with the same result as the whole."""

from pathlib import Path

import pytest
import yaml

from manyheads.runner.run import frozen
from manyheads.runner.run.yaml_text import flatten

CONFIGS = {
    "as a run is frozen": "format: 3\nname: null\ntags: []\noptimizer:\n  name: sgd\n  lr: 0.1\n  betas:\n  - 0.9\n",
    "a key that is called format": "checkpoint:\n  format: auto\n  every: 1epoch\n",
    "sections below sections": "logger:\n  csv:\n    every: 1\n  wandb:\n    mode: offline\ncallbacks: {}\n",
    "a text that looks like keys": "notes: |\n  a: 1\n  b: 2\n",
    "texts of several lines": 'model:\n  name: "x\n  y: z"\n  text: >\n    a\n    b: c\n  width: 3\n',
    "a mapping over two lines": "model:\n  sizes: {a: 1,\n  b: 2}\n",
    "an alias in the section": "model:\n  a: &width 3\n  b: *width\n",
    "an alias for another section": "model:\n  a: &width 3\ndata:\n  b: *width\n",
    "keys that are no texts": "1:\n  2: a\nnull:\n  true: b\n",
    "remarks": "# sealed\nmodel:\n  # of the model\n  a: 1 # one\n\n  b: 2\n",
    "a section that is a list": "tags:\n- a\n- b: c\n",
    "a section that is a text": "model:\n  a text\n  of two lines\n",
}


@pytest.mark.parametrize("text", CONFIGS.values(), ids=CONFIGS)
def test_parts_mean_what_the_whole_means(tmp_path: Path, text: str):
    path = tmp_path / "run.yaml"
    path.write_text(text)
    whole = yaml.safe_load(text)
    whole.pop("format", None)
    assert frozen.read_frozen(path) == flatten(whole)


@pytest.mark.parametrize("text", ["a: [1\n", "a:\n  b: 1\n  - c\n", "a:\n  b: 1\n  c\n"])
def test_what_is_no_yaml_counts_as_none(tmp_path: Path, text: str):
    path = tmp_path / "run.yaml"
    path.write_text(text)
    assert frozen.read_frozen(path) == {}


@pytest.mark.parametrize(
    "items", ["- model.width=2\n- +x=1\n", "- 'a=1e-4'\n", '- "a=\\x1b"\n', "- a=b c\n  d\n", "- a=[1, 2]\n", "- a=\n"]
)
def test_overrides_are_read_as_yaml_reads_them(tmp_path: Path, items: str):
    path = tmp_path / "overrides.yaml"
    path.write_text(items)
    assert frozen.read_typed(path) == [each.replace("\x1b", "\\x1b") for each in yaml.safe_load(items)]


@pytest.fixture
def parsed(monkeypatch) -> list[str]:
    """The texts that YAML parses from now on."""
    texts: list[str] = []
    parse = frozen.yaml_text.parse
    monkeypatch.setattr(frozen.yaml_text, "parse", lambda text: texts.append(text) or parse(text))
    frozen._read.cache_clear()
    frozen._parsed.cache_clear()
    return texts


def test_of_runs_that_differ_in_one_key_only_that_is_parsed_again(tmp_path: Path, parsed: list[str]):
    path = tmp_path / "run.yaml"
    for number in range(20):
        path.write_text(f"seed: 1\noptimizer:\n  name: sgd\n  lr: 0.{number}5\n  momentum: 0.9\n")
        assert frozen.read_frozen(path)["optimizer.lr"] == float(f"0.{number}5")
    assert len(parsed) == 23 + 1  # 20 rates, momentum, name, seed, and the section's own
    assert all(text.count("\n") == 1 for text in parsed)


def test_what_is_plainly_a_text_and_what_nobody_wants_are_not_parsed(tmp_path: Path, parsed: list[str]):
    overrides, config = tmp_path / "overrides.yaml", tmp_path / "run.yaml"
    overrides.write_text("- optimizer.lr=0.1\n- model=mlp\n")
    config.write_text("name: first\nseed: 1\nmodel:\n  width: 3\n")
    assert frozen.read_typed(overrides) == ["optimizer.lr=0.1", "model=mlp"]
    assert frozen.read_frozen(config, only="name") == {"name": "first"}
    assert parsed == ["name: first\n"]
