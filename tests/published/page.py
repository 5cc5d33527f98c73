"""Tables of docs/published.md, read back from the page."""

import re

from tests.conftest import ROOT

PAGE = ROOT / "docs" / "published.md"


def table(heading: str) -> list[dict[str, str]]:
    """The rows of the first table below a heading, by column."""
    section = PAGE.read_text().split(f"\n## {heading}\n")[1].split("\n## ")[0]
    first = re.search(r"(?:^\|.*\|\n)+", section, flags=re.MULTILINE)
    assert first, f"there is no table below {heading}"
    names, _, *rows = ([cell.strip() for cell in line.split("|")[1:-1]] for line in first[0].splitlines())
    return [dict(zip(names, row, strict=True)) for row in rows]
