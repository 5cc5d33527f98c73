"""``python -m runner trust``: make a project, or somebody else's run, one's own, after showing what it could run."""

import argparse
import sys
from pathlib import Path

from manyheads.runner.errors import ConfigurationError, printable
from manyheads.runner.machine import invocation
from manyheads.runner.trust.look import digest, look
from manyheads.runner.wording import is_confirmed

HELP = "trust a folder of configs, or somebody else's run or sweep, after showing what it could run"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument("folder", help="a project, such as . , or the folder of configs, a run or a sweep")
    parser.add_argument("--yes", metavar="DIGEST", help="do not ask; DIGEST is printed with what would be trusted")


def run(arguments: argparse.Namespace) -> int:
    """Return 0 when the folder is the user's own now, 1 when he said no. Raises ConfigurationError."""
    folder = Path(arguments.folder)
    if not folder.is_dir():
        raise ConfigurationError(f"{folder} is not a folder. Name that of a project, of a run or of a sweep.")
    looks = look(folder)
    for line in (line for each in looks for line in each.lines):
        print(line)
    shown = digest(looks)
    print(f"digest {shown}")
    if arguments.yes not in (None, shown):
        raise ConfigurationError(
            f"--yes {arguments.yes} is not the digest of what is shown above, and trusted nothing."
        )
    if arguments.yes is None and not sys.stdin.isatty():
        command = invocation.command("trust", folder, "--yes", shown)
        raise ConfigurationError(f"there is no terminal to ask on. Read the above; to trust exactly that: {command}")
    if arguments.yes is None and not is_confirmed("Trust it as your own?"):
        print("nothing has changed")
        return 1
    try:
        for each in looks:
            each.trust()
    except OSError as error:
        raise ConfigurationError(f"the list of what you trust cannot be written: {error}.") from None
    print(f"{printable(looks[0].folder if looks[0].covers is None else folder)} is now trusted as your own")
    return 0
