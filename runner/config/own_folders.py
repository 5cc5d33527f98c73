"""Folders of options besides this project's: the user's own conf/, once trusted, and those of installed packages."""

import os
import sys
from functools import cache
from pathlib import Path

from manyheads.runner.config.command_line import CommandLine
from manyheads.runner.config.installed import packages
from manyheads.runner.config.lookup import CONF
from manyheads.runner.errors import filled, printable
from manyheads.runner.machine import invocation
from manyheads.runner.run.seal import is_own_place
from manyheads.runner.trust.trust_store import conf_of


def with_own_folders(line: CommandLine) -> CommandLine:
    """The command line with the user's own conf/, and with the folders of installed packages.

    Raises ConfigurationError as ``with_project`` and ``packages`` do.
    """
    line = with_project(line)
    known = {source.folder for source in line.sources()}
    for package in packages():
        line = line if package.folder in known else line.searching(package.folder)
    return line


def with_project(line: CommandLine) -> CommandLine:
    """The command line with the conf/ of the working directory, if it exists and is the user's own.

    One that is not trusted yet is named on stderr and not read. Raises ConfigurationError for a pyproject.toml that
    names a folder which does not exist.
    """
    here = Path.cwd()
    found = None if (here / ".names" / "manyheads").is_dir() else conf_of(here)  # none in a checkout of this project
    conf = found and found.resolve()
    if conf is None or conf in {CONF, *(place.folder.resolve() for place in line.sources() if place.folder)}:
        return line
    if is_own_place(conf):
        return line.searching(conf)
    if not line.flags.shell_completion:
        _tell_unread(conf)
    return line


@cache  # a command that composes many configs says it once
def _tell_unread(conf: Path) -> None:
    how = f"If it is yours, run once: {invocation.command('trust', '.')}"
    unread = f"{printable(os.path.relpath(conf))} was not read, since you have not marked it as your own."
    print(filled(f"{unread} {how}"), file=sys.stderr)
