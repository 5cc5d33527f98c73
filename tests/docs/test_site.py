"""The site: every link leads somewhere, every page can be reached, nothing is fetched from elsewhere."""

import hashlib
import json
import re
from pathlib import Path

import pytest
import yaml

from manyheads.runner.config.lookup import CONF
from tests.conftest import ROOT
from tests.docs.config_reference import reference
from tests.docs.site import BESIDE, GENERATED, OF_CONFIG, build, schemas
from tests.needs import require

PAGES = {path.name for path in (ROOT / "docs").glob("*.md")} - {"README.md"}
OPTIONS = sorted((path.parent.name, path.stem) for path in CONF.glob("*/*.yaml") if path.parent.name != "tuned")


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> Path:
    """The built site; building it fails for a link that leads nowhere."""
    require("zensical")
    folder = tmp_path_factory.mktemp("docs")
    assert build(folder) == 0
    return folder / "site"


def test_nothing_is_fetched_from_elsewhere(site):
    fetched = re.compile(r"""<(?:script|link|img|iframe)[^>]+(?:src|href)="(?:https?:)?//[^"]+""")
    allowed = re.compile(r"""<link[^>]+rel="?(?:canonical|alternate|prev|next)""")
    for page in site.glob("*.html"):
        found = [one for one in fetched.findall(page.read_text()) if not allowed.match(one)]
        assert not found, f"{page.name}: {found}"


def test_every_page_is_built(site):
    built = {page.stem for page in site.glob("*.html")}
    assert {name.removesuffix(".md") for name in PAGES} <= built
    assert {"index", *(name.removesuffix(".md") for name in GENERATED)} <= built


def test_programs_find_every_page_as_markdown_the_one_for_agents_first(site):
    listed = re.findall(r"\]\((\S+)\)", (site / "llms.txt").read_text())
    assert listed[0] == "SKILL.md"
    assert [name for name in listed if not (site / name).is_file()] == []
    assert set(listed) == {*PAGES, *BESIDE.values(), *GENERATED}


def test_every_page_is_in_the_navigation_and_every_entry_is_a_page():
    sections = yaml.safe_load((ROOT / "docs" / "mkdocs.yml").read_text())["nav"]
    entries = [entry for section in sections for pages in section.values() for entry in pages]
    listed = {entry if isinstance(entry, str) else next(iter(entry.values())) for entry in entries}
    assert listed == {*PAGES, *BESIDE.values(), *GENERATED}


def test_the_map_of_the_folder_names_every_page():
    linked = set(re.findall(r"\]\((\w[\w.-]*\.md)\)", (ROOT / "docs" / "README.md").read_text()))
    assert linked == PAGES


def test_the_reference_has_every_option_and_its_keys():
    page = reference()
    assert [option for option in OPTIONS if f"### {'='.join(option)}\n" not in page] == []
    assert "| `parallel.bucket_cap_mb` | `25` | " in page
    assert "| `trainer.epochs` | `90 or max_steps` |" in page
    assert "| `metrics.auroc.at_most` | `1024` | " in page
    assert "| `shard` | trainer.channels_last | FSDP shards contiguous weights only | Set " in page


def test_the_table_of_options_is_complete():
    rows = re.findall(r"^\| `(\w+)` \| (.*) \|$", (ROOT / "docs" / "options.md").read_text(), flags=re.MULTILINE)
    groups = {group for group, _ in OPTIONS}
    named = sorted((group, option) for group, cell in rows for option in re.findall(r"`(\w+)`", cell))
    assert [one for one in named if one in OPTIONS or one[1] not in groups] == OPTIONS


def test_a_changed_schema_is_in_the_changelog():
    """Whoever changes a published schema says so: the newest version's Interfaces section names their digest."""
    text = json.dumps({name: schema for name, schema in schemas().items() if name not in OF_CONFIG}, sort_keys=True)
    digest = hashlib.sha256(text.encode()).hexdigest()[:12]
    newest = (ROOT / "CHANGELOG.md").read_text().split("\n## ")[1]
    assert f"(schemas {digest})" in newest, f"a schema changed: say how under Interfaces, with (schemas {digest})"


def test_the_readme_is_short():
    assert len((ROOT / "README.md").read_text().splitlines()) <= 120
