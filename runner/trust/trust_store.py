"""The user's trust: packages by name, and typed values in somebody else's config."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from manyheads.runner.config.typed_packages import ALLOWED, NAME
from manyheads.runner.errors import ConfigurationError, warn
from manyheads.runner.machine import invocation
from manyheads.runner.machine.ownership import open_to_others
from manyheads.runner.machine.user_folders import user_folder
from manyheads.runner.run import yaml_text
from manyheads.runner.run.seal import how_it_is_known

FILE = "manyheads.yaml"


@dataclass(frozen=True)
class Trust:
    """The parts of a config that the user trusts. ``packages``: dotted names, each including its submodules.

    ``typed``: keys with the values that the user set; ``folder``: somebody else's, that the config is from, if any;
    ``replaced``: keys and groups whose values are not used, since the user has typed others.
    """

    packages: tuple[str, ...] = ()
    typed: tuple[tuple[str, Any], ...] = ()
    folder: Path | None = None
    replaced: tuple[str, ...] = ()

    def covers(self, name: str) -> bool:
        """my_package covers my_package and my_package.x, not my_package_2."""
        return any(name == package or name.startswith(f"{package}.") for package in self.packages)

    def how_to_own(self) -> str:
        """The last sentences of an error: how own runs are known, and the command by which this becomes one's own."""
        if self.folder is None:
            return ""
        return f" {how_it_is_known()} If it is your own, run once: {invocation.command('trust', self.folder)}"

    def is_own(self, key: str, value: Any) -> bool:
        """Whether the user set this key to this value."""
        return (key, value) in self.typed


def trusted_packages(typed: Iterable[str] = ()) -> tuple[str, ...]:
    """The trusted packages: of the user's file, and ``typed``. Raises ConfigurationError."""
    return (*of_file(), *typed)


def file() -> Path | None:
    """The file in which the user lists permanently trusted packages."""
    folder = user_folder("config")
    return None if folder is None else folder / FILE


def of_file() -> list[str]:
    """The packages in ~/.config/manyheads.yaml. Raises ConfigurationError if it contains anything else."""
    if (path := file()) is None:
        return []
    try:
        content = yaml_text.parse(path.read_text())
    except (FileNotFoundError, NotADirectoryError):
        return []
    except PermissionError:  # a home of somebody else's, such as in a container
        warn(f"{path} can't be read, so nothing in it is trusted")
        return []
    except (OSError, ValueError, yaml_text.Error) as error:
        raise ConfigurationError(f"{path} can't be read: {' '.join(str(error).split())}") from None
    if (others := open_to_others(path)) is not None:
        warn(f"nothing in {path} is trusted, since others may write to {others}. Remove their write permission")
        return []
    if content is None:
        return []
    if not isinstance(content, dict) or set(content) != {"trust"}:
        raise ConfigurationError(f"{path}: trust is the only allowed key. {ALLOWED} in a list, trust: [my_package].")
    listed = content["trust"]
    listed = listed if isinstance(listed, list) else [listed]
    wrong = [name for name in listed if not (isinstance(name, str) and NAME.fullmatch(name))]
    if wrong:
        raise ConfigurationError(f"{path}: trust: {wrong[0]} is not the name of a package. {ALLOWED}.")
    return listed
