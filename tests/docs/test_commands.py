"""Every command in README and docs/: run where this machine can, else composed and checked as far as that goes."""

import re
import shlex

import pytest
from hydra.core.override_parser.overrides_parser import OverridesParser

from manyheads.runner.config.command_line import CommandLine
from tests.conftest import ROOT
from tests.docs.console import Console, difference, pages, skipped
from tests.in_process import composed
from tests.needs import PARTLY
from tests.tail import tailed

pytestmark = pytest.mark.ci

NAMES = [str(path.relative_to(ROOT)) for path in pages()]


@pytest.mark.parametrize("name", tailed(NAMES, always=["README.md"]))
@pytest.mark.processes
@pytest.mark.timeout(1200)
def test_a_pages_commands_print_what_it_says(name, tmp_path, monkeypatch, record_property):
    monkeypatch.setenv("COLUMNS", "100")
    console = Console(tmp_path)
    console.page(ROOT / name)
    for reason in console.without:
        record_property(PARTLY, reason)


@pytest.mark.parametrize("name", NAMES)
def test_commands_that_are_not_run_compose(name):
    for command in skipped(ROOT / name):
        words = shlex.split(command, comments=True)
        if words[:2] in (["manyheads", "train"], ["manyheads", "estimate"], ["manyheads", "parity"]):
            composed(*CommandLine(tuple(overrides(words[2:]))).overrides)


def overrides(words: list[str]) -> list[str]:
    """The overrides of a command without its flags and folders; of a sweep its first job's."""
    keys = [word for word in words if re.match(r"[+~]?[\w./@]+=", word) and not word.startswith(("-", "hydra."))]
    files = ["model=custom" for word in words if re.match(r"[\w/]+\.py:", word)]
    keys = files + [re.sub(r"=[\w/]+\.py:\w+", "=custom", key) for key in keys]
    parsed = [OverridesParser.create().parse_override(key) for key in keys]
    return [
        f"{one.key_or_group}={next(one.sweep_string_iterator())}" if one.is_sweep_override() else key
        for one, key in zip(parsed, keys, strict=True)
    ]


@pytest.mark.parametrize("name", NAMES)
def test_python_blocks_can_be_copied(name):
    for block in re.findall(r"^```python\n(.*?)^```", (ROOT / name).read_text(), flags=re.MULTILINE | re.DOTALL):
        compile(block, name, "exec")


def test_no_command_hides_in_a_block_of_another_kind():
    """A block whose lines are commands says ``console``, so that it is run."""
    for path in pages():
        for block in re.findall(r"^```\n(.*?)^```", path.read_text(), flags=re.MULTILINE | re.DOTALL):
            assert not re.search(r"^(\$ )?(manyheads|python run\.py|python -m runner) \w", block, re.MULTILINE), block


@pytest.mark.parametrize(
    ("documented", "printed", "same"),
    [
        ("loss 0.50\n...\ndone in 3 s", "loss 0.51\nepoch 2\ndone in 41 s", True),
        ("loss 0.50", "loss 0.75", False),
        ("epoch 1/3", "epoch 1/4", False),
        ("┌──┐ x   y", "┌────┐ x y", True),
        ("results in outputs/2026-01-31/12-00-00", "results in outputs/2027-03-01/01-02-03", True),
    ],
)
def test_what_counts_as_the_same_output(documented, printed, same):
    assert (difference(documented, printed) is None) == same
