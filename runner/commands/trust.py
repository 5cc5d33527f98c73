"""``python -m runner trust``: trust a project, or somebody else's run or sweep, after showing what it could run."""

import argparse
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from manyheads.runner.errors import ConfigurationError, ExitCode, printable
from manyheads.runner.machine import invocation
from manyheads.runner.run.answer import Answer
from manyheads.runner.trust.look import digest, look, screen
from manyheads.runner.wording import is_confirmed, tell

HELP = "trust a folder of configs, or somebody else's run or sweep, after showing what it could run"


@dataclass(frozen=True)
class Trusted(Answer):
    """The code that a folder could run, and whether the folder is trusted now."""

    folder: Annotated[str, "what is trusted: the project, the run or the sweep"]
    is_trusted: Annotated[bool, "false if the user declined"]
    digest: Annotated[str, "the digest of what is shown; --yes with it trusts exactly this"]
    shown: Annotated[list[str], "what the folder could run, in lines"]

    @property
    def exit_code(self) -> ExitCode:
        return ExitCode.DONE if self.is_trusted else ExitCode.NO

    def show(self) -> None:
        tell(f"{self.folder} is now trusted as your own" if self.is_trusted else "nothing has changed")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument("folder", help="a project, such as . , or the folder of configs, a run or a sweep")
    parser.add_argument("--yes", metavar="DIGEST", help="do not ask; DIGEST is printed with what would be trusted")


def run(arguments: argparse.Namespace) -> Trusted:
    """Show what the folder could run, ask, and trust it. Raises ConfigurationError."""
    if not (folder := Path(arguments.folder)).is_dir():
        raise ConfigurationError(f"{folder} is not a folder. Name the folder of a project, of a run or of a sweep.")
    looks = look(folder)
    lines, shown = screen(looks), digest(looks)
    for line in (*lines, f"digest {shown}"):
        tell(line)
    name = printable(looks[0].folder if looks[0].covers is None else folder)
    if arguments.yes not in (None, shown):
        raise ConfigurationError.at(
            "--yes",
            arguments.yes,
            " is not the digest of what is shown above, so nothing was trusted.",
            allowed=[shown],
        )
    if arguments.yes is None and not sys.stdin.isatty():
        command = invocation.command("trust", folder, "--yes", shown)
        raise ConfigurationError(
            f"there is no terminal to ask on. Read the above; to trust exactly that: {command}",
            key="--yes",
            allowed=[shown],
        )
    if arguments.yes is None and not is_confirmed("Trust it as your own?"):
        return Trusted(name, False, shown, lines)
    try:
        for seen in looks:
            seen.trust()
    except OSError as error:
        raise ConfigurationError(f"the list of what you trust cannot be written: {error}.") from None
    return Trusted(name, True, shown, lines)
