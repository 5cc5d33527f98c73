"""docs/ as a site: its pages, README as the first of them, and the config reference, put together in one folder."""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

from manyheads.runner.commands import names
from manyheads.runner.commands.schema import schema_of_command
from manyheads.runner.config.config_schema import schema_for
from manyheads.runner.run.json_schema import Schema
from tests.conftest import ROOT
from tests.docs.config_reference import reference

# Pages that lie beside README in the repository, and what they are called in the site.
BESIDE = {
    "README.md": "index.md",
    "README.zh.md": "zh.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
}
OF_CONFIG = ("config", "experiment")
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
    (pages / "README.md").unlink()  # the map of the folder on GitHub; the site has its navigation
    for page in pages.glob("*.md"):
        page.write_text(re.sub(r"<!--- skip.*?-->\n", "", _from_docs(page.read_text())))
    (pages / "config.md").write_text(reference())
    (pages / "schemas").mkdir()
    for name, schema in schemas().items():
        (pages / "schemas" / f"{name}.json").write_text(json.dumps(schema, ensure_ascii=False))
    command = [sys.executable, "-m", "zensical", "build", "--strict", "-f", str(folder / "mkdocs.yml")]
    return subprocess.run(command, cwd=folder).returncode


def schemas() -> dict[str, Schema]:
    """Of each command's answer, and of the config, by the name that ``manyheads schema`` takes."""
    return {**{name: schema_of_command(name) for name in names()}, **{name: schema_for(name) for name in OF_CONFIG}}


def _from_docs(text: str) -> str:
    """A page of docs/, whose links to the repository's root lead to the pages beside it."""
    for name, page in BESIDE.items():
        text = text.replace(f"](../{name}", f"]({page}")
    return text


def _from_root(text: str) -> str:
    """A page that lies in the repository's root, as one among the others."""
    for name, page in BESIDE.items():
        text = text.replace(f"]({name}", f"]({page}")
    text = text.replace("](docs/)", "](config.md)").replace("](docs/README.md)", "](install.md)")
    return text.replace("](docs/", "](")
