"""``manyheads new``: write a small project that runs right away."""

import argparse
import keyword
import shlex
import sys
from dataclasses import dataclass
from importlib.machinery import PathFinder
from pathlib import Path
from typing import Annotated

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from manyheads.runner.config.config_schema import SCHEMA, schema_of_files
from manyheads.runner.config.project import own_project
from manyheads.runner.errors import ConfigurationError
from manyheads.runner.machine import invocation
from manyheads.runner.run import seal
from manyheads.runner.run.answer import Answer

HELP = "write a small project: a model, a data set, configs, a test"
TEMPLATE = Path(__file__).resolve().parent / "template"
SUFFIX = ".j2"


@dataclass(frozen=True)
class NewProject(Answer):
    """A project that was written, and is trusted as the user's own."""

    folder: Path
    try_it: Annotated[list[str], "commands to try it, in this order"]

    def show(self) -> None:
        print(f"{self.folder} is created, and trusted as your own. Try it:")
        for command in self.try_it:
            print(f"  {command}")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument("folder", help="a new folder, such as my_project; the project takes its name")


def run(arguments: argparse.Namespace) -> NewProject:
    """Write the project, and trust it as the user's own. Raises ConfigurationError."""
    folder = Path(arguments.folder)
    try:
        write_project(folder)
        seal.trust(own_project(folder), None, project=folder)
    except OSError as error:
        raise ConfigurationError(f"{folder} cannot be written or trusted as your own: {error}.") from None
    train = (
        invocation.command("train")
        if invocation.by_script()
        else shlex.join(["python", str(invocation.ROOT / "run.py")])
    )
    return NewProject(folder, [f"cd {shlex.quote(str(folder))}", f"{train} experiment=quick"])


def write_project(folder: Path) -> None:
    """Write the project into a new or empty folder, which gives it its name.

    Raises ConfigurationError, before anything is written, if the name is not allowed or the folder is not empty.
    """
    project, package = folder.resolve().name, folder.resolve().name.replace("-", "_")
    if not package.isidentifier() or not package.isascii() or keyword.iskeyword(package):
        raise ConfigurationError(
            f"{project} is not a valid package name. Allowed: letters, digits and _, such as my_project."
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
        first, *rest = Path(name.removesuffix(SUFFIX)).parts
        path = folder.joinpath({"package": package, "gitignore": ".gitignore"}.get(first, first), *rest)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(templates.get_template(name).render(project=project, package=package))
    conf = folder / "conf"
    (conf / SCHEMA).write_text(schema_of_files(conf))
