"""The user's trust: packages by name and typed values in somebody else's config, and a project's own configs."""

import re
import tomllib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from manyheads.runner.errors import ConfigurationError, printable, warn
from manyheads.runner.machine import invocation
from manyheads.runner.machine.ownership import open_to_others
from manyheads.runner.machine.user_folders import user_folder
from manyheads.runner.run import yaml_text
from manyheads.runner.run.folder import Folder
from manyheads.runner.run.seal import how_it_is_known

FILE = "manyheads.yaml"
_TYPED = re.compile(r"\+{0,2}trust=(.*)", re.DOTALL)
NAME = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*", re.ASCII)
_ALLOWED = "Allowed: names of packages, such as my_package or my_package.models"


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


def split_typed(arguments: Iterable[str]) -> tuple[list[str], list[str]]:
    """The packages named by ``trust=...`` among the arguments, and the other arguments. Raises ConfigurationError."""
    typed, others = [], []
    for argument in arguments:
        if match := _TYPED.fullmatch(argument):
            typed += names(match[1].strip().removeprefix("[").removesuffix("]"), argument=argument)
        else:
            others.append(argument)
    return typed, others


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
        raise ConfigurationError(f"{path}: trust is the only allowed key. {_ALLOWED} in a list, trust: [my_package].")
    listed = content["trust"]
    listed = listed if isinstance(listed, list) else [listed]
    wrong = [name for name in listed if not (isinstance(name, str) and NAME.fullmatch(name))]
    if wrong:
        raise ConfigurationError(f"{path}: trust: {wrong[0]} is not the name of a package. {_ALLOWED}.")
    return listed


def names(text: str, *, argument: str) -> list[str]:
    """Parse package names separated by commas. Raises ConfigurationError, which quotes ``argument``."""
    packages = [name.strip().strip("'\"") for name in text.split(",")]
    packages = [name for name in packages if name]
    if not all(map(NAME.fullmatch, packages)):
        message = f"{argument} is not the name of a package. {_ALLOWED}, separated by commas."
        raise ConfigurationError(message, key="trust", value=text)
    return packages


def own_project(folder: Path) -> Path:
    """The folder of configs that trusting ``folder`` applies to: that of its project, else the folder itself."""
    return (conf_of(folder) or folder).resolve()


def conf_of(folder: Path) -> Path | None:
    """A project's folder of configs: [tool.manyheads] conf in its pyproject.toml, else its conf/.

    Raises ConfigurationError if the named folder does not exist, or is not inside the project.
    """
    with Folder(folder.resolve()) as project:
        try:
            content: Any = tomllib.loads(project.read("pyproject.toml", most=10**6).decode())
            named = content.get("tool", {}).get("manyheads", {}).get("conf")
        except (OSError, ValueError, AttributeError, RecursionError, ConfigurationError):  # its other readers report it
            named = None
        try:
            with project.child(named if isinstance(named, str) else "conf") as conf:
                if conf.inode == project.inode:
                    raise ValueError("not a folder in it")
                return conf.path
        except (OSError, ValueError, ConfigurationError):
            if named is None:
                return None
            raise ConfigurationError(
                f"{printable(folder / 'pyproject.toml')}: [tool.manyheads] conf = {printable(repr(named))} is not a "
                "folder in the project. Allowed: the name of one, without .. and without links."
            ) from None
