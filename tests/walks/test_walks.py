"""Walks through the source: none has become longer, and neither a new name nor a wrapping hides one."""

import ast
from pathlib import Path

import pytest

from tests.walks.__main__ import RECORDED, figures
from tests.walks.source import ROOT, Source
from tests.walks.walk import Walk

BUILD = """
from dataclasses import dataclass
from manyheads.runner.other import use, keep, Kept

def build(config):
    trainer = config["trainer"]
    use(trainer)
    keep(config)
    use(config["trainer"]["epochs"])
    use(len(config))
"""
OTHER = """
from dataclasses import dataclass

def use(anything): ...

def keep(config):
    Kept(run=config).work()
    Holder(config)

class Holder:
    def __init__(self, given):
        self.given = given

    def read(self):
        return self.given

    def other(self): ...

@dataclass
class Kept:
    run: dict

    def work(self): ...
"""


@pytest.fixture(scope="module")
def source() -> Source:
    return Source.read(ROOT)


def test_no_measure_is_worse_than_recorded(source: Source) -> None:
    now = figures(source)
    assert {name: count for name, count in now.items() if count > RECORDED[name]} == {}
    assert now.keys() == RECORDED.keys()


@pytest.mark.parametrize(("name", "taken"), [("config", 'config["trainer"]'), ("run", "run.trainer")])
def test_a_walk_is_the_same_under_another_name(tmp_path: Path, name: str, taken: str) -> None:
    (tmp_path / "runner").mkdir()
    build = BUILD.replace('config["trainer"]', taken).replace("config", name)
    (tmp_path / "runner/build.py").write_text(build)
    (tmp_path / "runner/other.py").write_text(OTHER)
    walk = Walk(Source.read(tmp_path), f"runner/build.py:build:{name}")
    assert {(function.removeprefix("manyheads.runner.other."), parameter) for function, parameter in walk.stays} == {
        ("use", "anything"),
        ("keep", "config"),
        ("Kept", "run"),
        ("Holder.__init__", "given"),
        ("Holder.read", "self.given"),
    }
    assert walk.rooms == {"runner"}


def test_what_is_overridden_is_described_in_a_base(source: Source) -> None:
    """Overrides need no docstring (ruff's D102 is off), since they are described where they are declared."""
    missing = set()
    for function in source.functions.values():
        name = function.node.name
        if function.owner is not None and not name.startswith("_"):
            bases = [each for each in source.lineage(function.owner) if each != function.owner]
            declared = [found for each in bases if (found := source.functions.get(f"{each}.{name}"))]
            if declared and not any(ast.get_docstring(each.node) for each in declared):
                missing |= {each.name for each in declared}
    assert missing == set()
