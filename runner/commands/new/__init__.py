"""``manyheads new``: write a small project that runs right away."""

import argparse
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from manyheads.runner.commands.new.write_project import write_project
from manyheads.runner.errors import ConfigurationError
from manyheads.runner.machine import invocation
from manyheads.runner.run import seal
from manyheads.runner.run.answer import Answer
from manyheads.runner.trust.trust_store import own_project

HELP = "write a small project: a model, a data set, configs, a test"


@dataclass(frozen=True)
class NewProject(Answer):
    """A project that was written, and is trusted as the user's own."""

    folder: Path
    try_it: Annotated[list[str], "commands that try it, to be run in this order"]

    def show(self) -> None:
        print(f"{self.folder} is created, and trusted as your own. Try it:")
        for command in self.try_it:
            print(f"  {command}")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument("folder", help="a new folder, such as my_project; the project takes its name")


def run(arguments: argparse.Namespace) -> NewProject:
    """Write the project, and make it the user's own. Raises ConfigurationError."""
    folder = Path(arguments.folder)
    try:
        write_project(folder)
        seal.trust(own_project(folder), None)
    except OSError as error:
        raise ConfigurationError(f"{folder} cannot be written or trusted as your own: {error}.") from None
    train = (
        invocation.command("train")
        if invocation.by_script()
        else shlex.join(["python", str(invocation.ROOT / "run.py")])
    )
    return NewProject(folder, [f"cd {shlex.quote(str(folder))}", f"{train} experiment=quick"])
