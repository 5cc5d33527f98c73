"""docs/architecture.md and internals.md: few words, each once, and no file that is not there."""

import re
from pathlib import Path

import pytest

from tests.conftest import ROOT

PAGE = ROOT / "docs" / "architecture.md"
FOLDERS = [ROOT, ROOT / "runner", ROOT / "launchers", ROOT / "tests", *(ROOT / "runner").rglob("rank"), ROOT / "docs"]


def test_it_fits_on_two_screens_with_few_words():
    lines = PAGE.read_text().splitlines()
    words = [line.split("|")[1].strip() for line in lines if line.startswith("| ")][1:]
    assert len(lines) <= 100
    assert len(words) <= 25
    assert len(words) == len(set(words))


@pytest.mark.parametrize("page", ["architecture.md", "internals.md", "security.md"])
def test_the_files_that_it_names_are_there(page: str):
    named = re.findall(r"\b[a-z_]+(?:/[a-z_]+)+\.py\b", (ROOT / "docs" / page).read_text())
    assert named
    assert [each for each in named if not any((Path(folder) / each).is_file() for folder in FOLDERS)] == []
