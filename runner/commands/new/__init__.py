"""``manyheads new``: write a small project that runs right away."""

import argparse
import shlex
from pathlib import Path

from manyheads.runner.commands.new.write_project import write_project
from manyheads.runner.errors import ConfigurationError
from manyheads.runner.machine import invocation
from manyheads.runner.run import seal
from manyheads.runner.trust.trust_store import own_project

HELP = "write a small project: a model, a data set, configs, a test"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument("folder", help="a new folder, such as my_project; the project takes its name")


def run(arguments: argparse.Namespace) -> None:
    """Write the project, make it the user's own, say what can be done with it. Raises ConfigurationError."""
    folder = Path(arguments.folder)
    try:
        write_project(folder)
        seal.trust(own_project(folder), None)
    except OSError as error:
        raise ConfigurationError(f"{folder} cannot be written or trusted as your own: {error}.") from None
    print(f"{folder} is created, and trusted as your own. Try it:")
    print(f"  cd {shlex.quote(str(folder))}")
    train = (
        invocation.command("train")
        if invocation.by_script()
        else shlex.join(["python", str(invocation.ROOT / "run.py")])
    )
    print(f"  {train} experiment=quick")
