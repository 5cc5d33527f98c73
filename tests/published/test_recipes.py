"""docs/published.md says of every recipe in conf/experiment whether its figures were reproduced."""

import re
import shlex

import pytest

from tests.composing import composed
from tests.conftest import ROOT
from tests.docs.test_commands import overrides
from tests.published.page import table

RECIPES = sorted(path.stem for path in (ROOT / "conf" / "experiment").glob("*.yaml"))
ROWS = table("Every recipe")
NOT_RUN = "not run"


def named(row: dict[str, str]) -> list[str]:
    return re.findall(r"`(\w+)`", row["`experiment=`"])


def test_each_recipe_has_one_row():
    assert sorted(name for row in ROWS for name in named(row)) == RECIPES


@pytest.mark.parametrize("row", ROWS, ids=lambda row: " ".join(named(row)))
def test_what_was_run_has_a_date_and_a_command_that_composes(row):
    if row["figures"].startswith(NOT_RUN):
        assert not row["when"] + row["where"] + row["command"]
        return
    assert re.fullmatch(r"20\d\d-\d\d-\d\d", row["when"])
    assert row["where"]
    words = shlex.split(row["command"].strip("`"))
    assert words[:2] == ["manyheads", "train"]
    assert f"experiment={named(row)[0]}" in words
    composed(*overrides([word for word in words[2:] if word != "-m"]))
