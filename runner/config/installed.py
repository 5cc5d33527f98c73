"""Options that installed packages bring: folders of configs that their entry points name.

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

from manyheads.runner.config.lookup import NAMED, options
from manyheads.runner.errors import ConfigurationError
from manyheads.runner.option.declared import GROUPS

if TYPE_CHECKING:
    from importlib.metadata import Distribution

ENTRY_POINTS = "manyheads.conf"
ALLOWED = (*GROUPS, *NAMED, "experiment")


class Package(NamedTuple):
    """An installed package with options. ``name``: with its version; ``folder``: of its configs."""

    name: str
    folder: Path

    def options(self) -> Iterator[tuple[str, str]]:
        """Each group and option. Raises ConfigurationError for files that are not options."""
        for path in sorted(self.folder.rglob("*.yaml")):
            place = path.relative_to(self.folder)
            group, name = str(place.parent), place.stem
            if group not in ALLOWED:
                raise self.error(f"{place} is not an option. Allowed: <group>/<option>.yaml in {', '.join(ALLOWED)}.")
            if group == "experiment" and name.removesuffix("_quick") in {*options("data")} - {name}:
                raise self.error(f"{place} would change every run with data={name.removesuffix('_quick')}.")
            yield group, name

    def error(self, what: str) -> ConfigurationError:
        """The error for a package that cannot be used: what is wrong with it, and how to continue without it."""
        return ConfigurationError(f"{what} It comes from {self.name}: uninstall that package, or change its version.")


@cache
def packages() -> tuple[Package, ...]:
    """The installed packages that bring options, in alphabetical order.

    Raises ConfigurationError for an option that this project or another package has too, and for other configs.
    """
    found = sorted({package.folder: package for package in _found()}.values())
    owners: dict[tuple[str, str], Package | None] = {
        (group, name): None for group in ALLOWED for name in options(group)
    }
    for package in found:
        for group, name in package.options():
            if (group, name) in owners:
                owner = owners[group, name]
                raise package.error(f"{group}={name} is an option of {owner.name if owner else 'manyheads itself'}.")
            owners[group, name] = package
    return tuple(found)


def package_of(group: str, option: str) -> Package | None:
    """The installed package that brings an option; None for all others."""
    return next((each for each in packages() if (each.folder / group / f"{option}.yaml").is_file()), None)


def _found() -> Iterator[Package]:
    for distribution in _distributions():
        for entry in distribution.entry_points.select(group=ENTRY_POINTS):
            top, *inner = entry.module.split(".")
            spec = importlib.util.find_spec(top)  # of a top-level package, which this does not import
            name = f"{distribution.name} {distribution.version}"
            folders = [Path(each, *inner) for each in (spec.submodule_search_locations if spec else None) or ()]
            folder = next((each for each in folders if each.is_dir()), None)
            if folder is None:
                raise ConfigurationError(
                    f"the package {name} names {entry.value} as its folder of configs, which does not exist. "
                    "Reinstall or uninstall it."
                )
            yield Package(name, folder.resolve())


def _distributions() -> Iterator["Distribution"]:
    """Those with such an entry point; asking importlib.metadata for all of them takes four times as long."""
    for folder in dict.fromkeys(sys.path):
        try:
            names = [name for name in os.listdir(folder or ".") if name.endswith((".dist-info", ".egg-info"))]
        except OSError:
            continue
        for name in names:
            path = Path(folder, name)
            try:
                is_named = f"[{ENTRY_POINTS}]".encode() in (path / "entry_points.txt").read_bytes()
            except OSError:
                continue
            if is_named:
                from importlib.metadata import Distribution  # slow, and few have such a package

                yield Distribution.at(path)
