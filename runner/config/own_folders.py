"""Folders of options besides this project's: the user's own conf/, once trusted, and those of installed packages.

A package is found by its metadata and its options by their YAML files; nothing of it is imported before the user
chooses an option of it, or trusts the package.
"""

import importlib.util
import os
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from manyheads.runner.config.command_line import CommandLine
from manyheads.runner.config.lookup import CONF, NAMED, options
from manyheads.runner.config.project import conf_of
from manyheads.runner.errors import ConfigurationError, filled, printable
from manyheads.runner.machine import invocation
from manyheads.runner.option.declared import GROUPS
from manyheads.runner.run.seal import is_own_place

if TYPE_CHECKING:
    from importlib.metadata import Distribution


def with_own_folders(line: CommandLine) -> CommandLine:
    """The command line with the user's own conf/, and with the folders of installed packages.

    Raises ConfigurationError as ``with_project`` and ``packages`` do.
    """
    line = with_project(line)
    folders = {source.folder for source in line.sources()}
    for package in packages():
        line = line if package.folder in folders else line.searching(package.folder)
    return line


def with_project(line: CommandLine) -> CommandLine:
    """The command line with the conf/ of the working directory, if it exists and is the user's own.

    One that is not trusted yet is named on stderr and not read. Raises ConfigurationError for a pyproject.toml that
    names a folder which does not exist.
    """
    here = Path.cwd()
    folder = None if (here / ".names" / "manyheads").is_dir() else conf_of(here)  # none in a checkout of this project
    conf = folder and folder.resolve()
    if conf is None or conf in {CONF, *(source.folder.resolve() for source in line.sources() if source.folder)}:
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


ENTRY_POINTS = "manyheads.conf"
ALLOWED = (*GROUPS, *NAMED, "experiment")


class Package(NamedTuple):
    """An installed package with options. ``name``: its name and version; ``folder``: its folder of configs."""

    name: str
    folder: Path

    def options(self) -> Iterator[tuple[str, str]]:
        """Each group and option. Raises ConfigurationError for files that are not options."""
        for path in sorted(self.folder.rglob("*.yaml")):
            file = path.relative_to(self.folder)
            group, name = str(file.parent), file.stem
            if group not in ALLOWED:
                raise self.error(f"{file} is not an option. Allowed: <group>/<option>.yaml in {', '.join(ALLOWED)}.")
            if group == "experiment" and name.removesuffix("_quick") in {*options("data")} - {name}:
                raise self.error(f"{file} would change every run with data={name.removesuffix('_quick')}.")
            yield group, name

    def error(self, what: str) -> ConfigurationError:
        """The error for a package that cannot be used: the reason, and how to continue without it."""
        return ConfigurationError(f"{what} It comes from {self.name}: uninstall that package, or change its version.")


@cache
def packages() -> tuple[Package, ...]:
    """The installed packages that bring options, in alphabetical order.

    Raises ConfigurationError for files that are not options, or that this project or another package has too.
    """
    distinct = sorted({package.folder: package for package in _found()}.values())
    owners: dict[tuple[str, str], Package | None] = {
        (group, name): None for group in ALLOWED for name in options(group)
    }
    for package in distinct:
        for group, name in package.options():
            if (group, name) in owners:
                owner = owners[group, name]
                raise package.error(f"{group}={name} is an option of {owner.name if owner else 'manyheads itself'}.")
            owners[group, name] = package
    return tuple(distinct)


def package_of(group: str, option: str) -> Package | None:
    """The installed package that brings an option; None for all others."""
    return next((package for package in packages() if (package.folder / group / f"{option}.yaml").is_file()), None)


def _found() -> Iterator[Package]:
    for distribution in _distributions():
        for entry in distribution.entry_points.select(group=ENTRY_POINTS):
            top, *inner = entry.module.split(".")
            spec = importlib.util.find_spec(top)  # of a top-level package, which this does not import
            name = f"{distribution.name} {distribution.version}"
            folders = [Path(location, *inner) for location in (spec.submodule_search_locations if spec else None) or ()]
            folder = next((candidate for candidate in folders if candidate.is_dir()), None)
            if folder is None:
                raise ConfigurationError(
                    f"the package {name} names {entry.value} as its folder of configs, which does not exist. "
                    "Reinstall or uninstall it."
                )
            yield Package(name, folder.resolve())


def _distributions() -> Iterator["Distribution"]:
    """The distributions with this entry point; listing all by importlib.metadata takes four times as long."""
    for folder in dict.fromkeys(sys.path):
        try:
            names = [name for name in os.listdir(folder or ".") if name.endswith((".dist-info", ".egg-info"))]
        except OSError:
            continue
        for name in names:
            try:
                is_named = f"[{ENTRY_POINTS}]".encode() in Path(folder, name, "entry_points.txt").read_bytes()
            except OSError:
                continue
            if is_named:
                from importlib.metadata import Distribution  # slow, and few have such a package

                yield Distribution.at(Path(folder, name))
