"""Phrases that CONTRIBUTING replaces do not come back, in pages nor in code."""

import re
from collections.abc import Iterator
from pathlib import Path

from tests.conftest import ROOT


def phrases() -> list[str]:
    """Those in backticks in the first column of CONTRIBUTING's table of words."""
    table = (ROOT / "CONTRIBUTING.md").read_text().partition("\n## Words\n")[2].partition("\n## ")[0]
    cells = re.findall(r"^\| (.*?) \|", table, flags=re.MULTILINE)
    return [phrase for cell in cells for phrase in re.findall(r"`(.+?)`", cell)]


def texts() -> Iterator[Path]:
    """Pages, and the code with its docstrings, comments and messages."""
    yield ROOT / "README.md"
    yield from (ROOT / "docs").glob("*.md")
    for folder, ending in (("conf", "yaml"), ("runner", "py"), ("launchers", "py")):
        yield from (ROOT / folder).rglob(f"*.{ending}")


def test_phrases_that_were_replaced_do_not_come_back():
    assert len(phrases()) > 20
    words = "|".join(re.escape(phrase).replace(r"\ ", r"\s+(?:# )?") for phrase in phrases())
    refused = re.compile(rf"(?<!there )\b(?:{words})\b", flags=re.IGNORECASE)
    found = {
        f"{path.relative_to(ROOT)}: {' '.join(match[0].split())}"
        for path in texts()
        for match in refused.finditer(path.read_text())
    }
    assert sorted(found) == [], "CONTRIBUTING.md says what to write instead"
