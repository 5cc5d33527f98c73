"""``manyheads new``: write a small project that runs at once."""

import json
import keyword
import sys
from importlib.machinery import PathFinder
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from manyheads.runner.config.config_schema import file_schema
from manyheads.runner.config.lookup import OWN
from manyheads.runner.errors import ConfigurationError

TEMPLATE = Path(__file__).resolve().parent / "template"
SUFFIX = ".j2"
SCHEMA = "schema.json"  # of experiments, for editors


def write_project(folder: Path) -> None:
    """Write it; the last part of ``folder`` is its name. Raises ConfigurationError, before anything is written."""
    project, package = folder.resolve().name, folder.resolve().name.replace("-", "_")
    if not package.isidentifier() or not package.isascii() or keyword.iskeyword(package):
        raise ConfigurationError(
            f"{project} is not a valid package name. Allowed: letters, digits and _, as in my_project."
        )
    taken = {"conf", "tests", "outputs", *sys.stdlib_module_names}
    if package in taken or PathFinder.find_spec(package) is not None:
        raise ConfigurationError(f"{project}: another package or folder already has that name. Choose another.")
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ConfigurationError(f"{folder} already exists and is not empty. Name a new folder.")
    templates = Environment(
        loader=FileSystemLoader(TEMPLATE), undefined=StrictUndefined, keep_trailing_newline=True, autoescape=False
    )
    for name in templates.list_templates(extensions=[SUFFIX[1:]]):
        path = folder / _place(name, package)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(templates.get_template(name).render(project=project, package=package))
    conf = folder / "conf"
    (conf / SCHEMA).write_text(schema_of_files(conf))


def schema_of_files(conf: Path) -> str:
    """What conf/schema.json says of the experiments beside it."""
    return json.dumps(file_schema((*OWN, conf)), ensure_ascii=False) + "\n"


def _place(template: str, package: str) -> Path:
    """Where a template's file goes."""
    first, *rest = Path(template.removesuffix(SUFFIX)).parts
    return Path({"package": package, "gitignore": ".gitignore"}.get(first, first), *rest)
