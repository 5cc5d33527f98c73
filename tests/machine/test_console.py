"""What users have written is printed as it stands."""

import io
import re

import pytest
from rich.table import Table

from manyheads.launchers.sweep import console
from manyheads.launchers.sweep.plan import PlannedJob
from manyheads.runner.machine.console import Console
from manyheads.runner.run.ledger import Entry, Ledger
from manyheads.runner.run.run_folder import RunFolder
from tests.conftest import ROOT

TYPED = ["metrics=[f1]", "tags=[/bold]", "notes=[red]:fire:", "a=[link=x]", "[1]"]


@pytest.mark.parametrize("text", TYPED)
def test_brackets_and_colons_are_printed(text):
    file = io.StringIO()
    table = Table(text, title=text)
    table.add_row(text)
    Console(file=file, width=80).print(table, text)
    assert file.getvalue().count(text) == 4


def test_in_a_sweep_too(tmp_path, capsys):
    folder = tmp_path / "[dim]sweep"
    entries = [Entry(number, str(number), [text], state="skipped", reason=text) for number, text in enumerate(TYPED)]
    Ledger(folder).create({}, *entries, entries[0].now("pending"))
    console.show_plan([PlannedJob(entry, None, RunFolder(folder / entry.folder)) for entry in entries])
    for entry in entries:
        console.job_starts(entry.overrides[0], at=1, of=2)
        console.job_ends(entry, entry.overrides[0], apart=False)
    console.outcome(Ledger(folder))
    out, err = capsys.readouterr()
    for text in TYPED:
        assert (out.count(text), err.count(text)) == (3, 1)
    assert "[dim]sweep" in err


def test_nothing_prints_by_richs_own_console():
    for folder in ("runner", "launchers"):
        for path in (ROOT / folder).rglob("*.py"):
            text = path.read_text()
            assert not (re.search(r"from rich.*\bConsole\b(?! as)", text) and re.search(r"\bConsole\(", text)), path
