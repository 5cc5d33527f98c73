"""docs/ as a site: its pages, README as the first of them, and the config reference, put together in one folder."""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import yaml

from manyheads.runner.commands import names
from manyheads.runner.commands.schema import schema_of_command
from manyheads.runner.config.config_schema import schema_for
from manyheads.runner.run.json_schema import Schema
from tests.conftest import ROOT
from tests.docs import (
    answers_reference,
    api_reference,
    commands_reference,
    config_reference,
    notebook,
    private_code_reference,
)

# Pages that lie beside README in the repository, and what they are called in the site.
BESIDE = {
    "README.md": "index.md",
    "README.zh.md": "zh.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
}
GENERATED = {
    "commands.md": commands_reference,
    "config.md": config_reference,
    "api.md": api_reference,
    "answers.md": answers_reference,
    "tour.md": notebook,
    "private-code.md": private_code_reference,
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
        page.write_text(_without_what_github_needs(_from_docs(page.read_text())))
    for name, module in GENERATED.items():
        (pages / name).write_text(module.reference())
    (pages / "schemas").mkdir()
    for name, schema in schemas().items():
        (pages / "schemas" / f"{name}.json").write_text(json.dumps(schema, ensure_ascii=False))
    (pages / "llms.txt").write_text(llms(folder / "mkdocs.yml"))
    command = [sys.executable, "-m", "zensical", "build", "--strict", "-f", str(folder / "mkdocs.yml")]
    code = subprocess.run(command, cwd=folder).returncode
    if not code:
        for page in pages.glob("*.md"):  # beside its HTML, for readers that are programs
            shutil.copy(page, folder / "site")
    return code


def llms(settings: Path) -> str:
    """The site's llms.txt (https://llmstxt.org): its pages as Markdown, the one for agents first."""
    site = yaml.safe_load(settings.read_text())
    lines = [f"# {site['site_name']}", "", f"> {site['site_description']}", ""]
    lines += ["- [For agents: everything needed for the whole work](SKILL.md)", ""]
    for section in site["nav"]:
        for title, entries in section.items():
            named = [next(iter(each.items())) if isinstance(each, dict) else ("Overview", each) for each in entries]
            lines += [f"## {title}", "", *(f"- [{name}]({page})" for name, page in named), ""]
    return "\n".join(lines)


def schemas() -> dict[str, Schema]:
    """Of each command's answer, and of the config, by the name that ``manyheads schema`` takes."""
    return {**{name: schema_of_command(name) for name in names()}, **{name: schema_for(name) for name in OF_CONFIG}}


def _without_what_github_needs(text: str) -> str:
    """A page without comments for the tests, and without the table of contents, which the site has beside it."""
    return re.sub(r"<!--- skip.*?-->\n|^\*\*目录\*\*：.*?\n\n", "", text, flags=re.MULTILINE | re.DOTALL)


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
