"""Each page has one kind, its section in the navigation, and no more words than docs/style.md allows for it."""

import re

import pytest
import yaml

from tests.conftest import ROOT

DOCS = ROOT / "docs"
STYLE = (DOCS / "style.md").read_text()
LIMITS = {kind: int(words or 0) for kind, words in re.findall(r"^\| (\w+) \|.*\| (?:(\d+) words|–) \|$", STYLE, re.M)}
ALL = int(re.search(r"All pages together stay below ([\d,]+) words", STYLE)[1].replace(",", ""))  # type: ignore[index]
OTHERS = {"Start", "中文", "Contribute"}  # sections that are not kinds


def kinds() -> dict[str, str]:
    """The kind of each page in docs/, without those of other sections."""
    sections = yaml.safe_load((DOCS / "mkdocs.yml").read_text())["nav"]
    pages = {}
    for title, entries in (item for section in sections for item in section.items()):
        kind = title.partition(":")[0].removesuffix("s")
        names = [entry if isinstance(entry, str) else next(iter(entry.values())) for entry in entries]
        pages |= {name: kind for name in names if title not in OTHERS and (DOCS / name).is_file()}
    return pages


def words(name: str) -> int:
    """How many words a page has; the bars of its tables are none."""
    return len(re.findall(r"\S*\w\S*", (DOCS / name).read_text()))


def test_sections_are_kinds_and_there_is_one_tutorial():
    assert set(kinds().values()) == LIMITS.keys()
    assert [name for name, kind in kinds().items() if kind == "Tutorial"] == ["tutorial.md"]


@pytest.mark.parametrize("kind", [kind for kind, limit in LIMITS.items() if limit])
def test_pages_are_short(kind: str):
    long = {name: words(name) for name, of in kinds().items() if of == kind and words(name) > LIMITS[kind]}
    assert long == {}, f"a {kind.lower()} has at most {LIMITS[kind]} words: split it, or move what is of another kind"


def test_all_pages_together_are_short():
    assert sum(words(path.name) for path in DOCS.glob("*.md")) < ALL
