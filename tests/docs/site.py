"""docs/ as a site: its pages, README as the first of them, and the config reference, put together in one folder."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

from tests.conftest import ROOT
from tests.docs.config_reference import reference

# Pages that lie beside README in the repository, and what they are called in the site.
BESIDE = {
    "README.md": "index.md",
    "README.zh.md": "zh.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
}
FILES = ("CITATION.cff", "LICENSE")


def build(folder: Path) -> int:
    """Put the pages together in ``folder`` and build ``folder/site``; not 0 where a link leads nowhere."""
    shutil.rmtree(folder, ignore_errors=True)
    pages = folder / "pages"
    shutil.copytree(ROOT / "docs", pages)
    shutil.move(pages / "mkdocs.yml", folder / "mkdocs.yml")
    for name in FILES:
        shutil.copy(ROOT / name, pages)
    for name, page in BESIDE.items():
        (pages / page).write_text(_from_root((ROOT / name).read_text()))
    for page in pages.glob("*.md"):
        page.write_text(re.sub(r"<!--- skip.*?-->\n", "", page.read_text()))
    (pages / "config.md").write_text(reference())
    command = [sys.executable, "-m", "zensical", "build", "--strict", "-f", str(folder / "mkdocs.yml")]
    return subprocess.run(command, cwd=folder).returncode


def _from_root(text: str) -> str:
    """A page that lies in the repository's root, as one among the others."""
    for name, page in BESIDE.items():
        text = text.replace(f"]({name}", f"]({page}")
    return text.replace("](docs/)", "](config.md)").replace("](docs/", "](")
