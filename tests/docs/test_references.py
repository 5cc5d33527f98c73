"""Pages of reference say what the code has: every flag, every column, every exported name."""

import re
from collections.abc import Sequence

import pytest

import manyheads
from manyheads.launchers.companions.load import GPU_COLUMNS, HOST_COLUMNS
from manyheads.runner.commands import names
from manyheads.runner.run.json_types import ResultJson
from manyheads.runner.run.tables.columns import (
    MFU,
    SKIPPED,
    SPIKES,
    STEP_COLUMNS,
    TAKEN,
    epoch_columns,
    evaluation_columns,
)
from tests.conftest import ROOT
from tests.docs import answers_reference, api_reference, commands_reference

TRAIN, VAL = ("train_loss", "train_acc1", "train_acc5"), ("val_loss", "val_acc1", "val_acc5")
TABLES = {
    "steps.csv": (*STEP_COLUMNS, MFU),
    "epochs.csv": epoch_columns(TRAIN, VAL),
    "evaluations.csv": evaluation_columns(VAL),
    "samples.csv, skipped.csv": TAKEN,
    "spikes.csv": SPIKES,
    "host.csv, gpu.csv": (*HOST_COLUMNS, *GPU_COLUMNS),
}


def test_commands_and_their_flags_are_those_that_there_are():
    page = commands_reference.reference()
    assert [name for name in names() if f"\n## [{name}](" not in page] == []
    assert "|`--budget BUDGET`|" in page


def test_every_command_has_a_guide_that_shows_it():
    guides = {name: ROOT / "docs" / f"{commands_reference.GUIDES.get(name, name)}.md" for name in names()}
    assert [name for name, guide in guides.items() if f"manyheads {name}" not in guide.read_text()] == []


@pytest.mark.parametrize(("table", "columns"), TABLES.items(), ids=TABLES)
def test_the_page_of_tables_has_every_column_in_its_order(table: str, columns: Sequence[str]):
    section = (ROOT / "docs" / "tables.md").read_text().partition(f"\n## {table}\n")[2].partition("\n## ")[0]
    cells = re.findall(r"^\| (`.*?) \|", section, flags=re.MULTILINE)
    assert re.findall(r"`(\w+)`", " ".join(cells)) == [*columns]
    if columns == TAKEN:
        assert [name for name in SKIPPED if f"`{name}`" not in section] == []


def test_the_page_of_tables_names_only_keys_of_a_result():
    section = (ROOT / "docs" / "tables.md").read_text().partition("\n## result.json")[2]
    cells = re.findall(r"^\| (`.*?) \|", section, flags=re.MULTILINE)
    named = set(re.findall(r"`(\w+)`", " ".join(cells)))
    assert named
    assert named <= ResultJson.__annotations__.keys()


def test_the_python_api_has_every_exported_name_and_every_base():
    page = api_reference.reference()
    exported = [f"manyheads.{name}" for name in manyheads.__all__ if name != "__version__"]
    assert [name for name in exported if f"\n### {name}\n" not in page] == []
    bases = [path.rpartition(".") for paths in api_reference.BASES.values() for path in paths]
    assert [base for base in bases if f"`from {base[0]} import {base[2]}`" not in page] == []
    assert "run(overrides: Sequence[str] = ()" in page


def test_the_answer_of_every_command_is_described():
    page = answers_reference.reference()
    assert [name for name in names() if f"\n## {name}\n" not in page] == []
    links = set(re.findall(r"\]\(#(\w+)\)", page))
    headings = {title.lower() for title in re.findall(r"^#+ (\w+)$", page, flags=re.MULTILINE)}
    assert links <= headings
