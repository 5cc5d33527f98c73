"""What is the user's own, and what the user trusts: packages by name, and what was typed, recorded or taken over."""

import hashlib
import hmac
import json
import os
import re
import tomllib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from manyheads.runner.run import called
from manyheads.runner.run.data_files import read_bytes, read_text
from manyheads.runner.run.errors import ConfigurationError, printable
from manyheads.runner.run.run_folder import RunFolder
from manyheads.runner.run.seal import is_taken_over, seal_of, take_over
from manyheads.runner.run.user_folders import user_folder

_PROJECT, _CODE = "project", "code"
VARIABLE = "MANYHEADS_TRUST"
FILE = "manyheads.yaml"
_TYPED = re.compile(r"\+{0,2}trust=(.*)", re.DOTALL)
NAME = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*", re.ASCII)
_ALLOWED = "Allowed: names of packages, such as my_package or my_package.models"


@dataclass(frozen=True)
class Trust:
    """What the user trusts of a config. ``packages``: dotted names, each including its submodules.

    ``own``: keys with values that are the user's own; ``place``: the foreign folder that the config is from, if any.
    """

    packages: tuple[str, ...] = ()
    own: tuple[tuple[str, Any], ...] = ()
    place: Path | None = None

    def covers(self, name: str) -> bool:
        """my_package covers my_package and my_package.x, not my_package_2."""
        return any(name == package or name.startswith(f"{package}.") for package in self.packages)

    def how_to_own(self) -> str:
        """The last sentence of an error: the command by which the user can take the config over."""
        if self.place is None:
            return ""
        return f" If it is your own, run once: {called.command('trust', self.place)}"

    def is_own(self, key: str, value: Any) -> bool:
        return (key, value) in self.own


def split_typed(arguments: Iterable[str]) -> tuple[list[str], list[str]]:
    """The packages named by ``trust=...`` among the arguments, and the other arguments. Raises ConfigurationError."""
    typed, others = [], []
    for argument in arguments:
        if match := _TYPED.fullmatch(argument):
            typed += names(match[1].strip().removeprefix("[").removesuffix("]"), said=argument)
        else:
            others.append(argument)
    return typed, others


def trusted_packages(typed: Iterable[str] = ()) -> tuple[str, ...]:
    """The trusted packages: of the user's file, of the environment, and ``typed``. Raises ConfigurationError."""
    variable = os.environ.get(VARIABLE, "")
    return (*of_file(), *names(variable, said=f"{VARIABLE}={variable}"), *typed)


def file() -> Path | None:
    """The file in which the user lists permanently trusted packages."""
    folder = user_folder("config")
    return None if folder is None else folder / FILE


def of_file() -> list[str]:
    """The packages in ~/.config/manyheads.yaml. Raises ConfigurationError if it contains anything else."""
    path = file()
    try:
        content = yaml.safe_load(path.read_text()) if path else None
    except (FileNotFoundError, NotADirectoryError):
        return []
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise ConfigurationError(f"{path} can't be read: {' '.join(str(error).split())}") from None
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


def names(text: str, *, said: str) -> list[str]:
    """Parse package names separated by commas. Raises ConfigurationError, which quotes ``said``."""
    found = [name.strip().strip("'\"") for name in text.split(",")]
    found = [name for name in found if name]
    if not all(map(NAME.fullmatch, found)):
        raise ConfigurationError(f"{said} is not the name of a package. {_ALLOWED}, separated by commas.")
    return found


def own_project(folder: Path) -> Path:
    """The folder of configs that trusting ``folder`` applies to: that of its project, else the folder itself."""
    return (conf_of(folder) or folder).resolve()


def conf_of(folder: Path) -> Path | None:
    """A project's folder of configs: [tool.manyheads] conf in its pyproject.toml, else its conf/.

    Raises ConfigurationError if the named folder does not exist.
    """
    try:
        content: Any = tomllib.loads(read_text(folder / "pyproject.toml", most=10**6))
        named = content.get("tool", {}).get("manyheads", {}).get("conf")
    except (
        OSError,
        ValueError,
        AttributeError,
        RecursionError,
    ):  # other readers of the file report what is wrong
        named = None
    conf = folder / (named if isinstance(named, str) else "conf")
    if named is not None and not conf.is_dir():
        raise ConfigurationError(
            f"{printable(folder / 'pyproject.toml')}: [tool.manyheads] conf = {printable(repr(named))} is not a folder."
        )
    return conf if conf.is_dir() else None


def trust_project(folder: Path) -> None:
    """Mark these configs, and those in subfolders, as the user's own. Raises OSError."""
    take_over(_PROJECT, _name(own_project(folder)))


def is_own_project(folder: Path) -> bool:
    """Whether the user has marked this folder, or one that contains it, as the user's own."""
    path = folder.resolve()
    return any(is_taken_over(_PROJECT, _name(each)) for each in (path, *path.parents))


def trust_run(folder: RunFolder, commit: object, diff: bytes) -> None:
    """Mark this run's config, and the code recorded with it, as the user's own. Raises OSError."""
    for path in (folder.config, folder.composed):
        if path.exists():
            take_over(path.name, read_bytes(path))
    take_over(_CODE, json.dumps(_about(folder, commit, diff)).encode())


def code_seal(folder: RunFolder, commit: object, diff: bytes) -> str | None:
    """The seal by which a run's record proves that commit and changes are those it was started from."""
    return seal_of(_CODE, *_about(folder, commit, diff))


def directory_seal(folder: RunFolder, directory: str) -> str | None:
    """The seal by which a run's record proves that it was started in this directory."""
    config = folder.config_content() if folder.config.exists() else b""
    return seal_of("directory", hashlib.sha256(config).hexdigest(), directory)


def is_own_directory(folder: RunFolder, directory: object, seal: object) -> bool:
    """Whether the user started this run there, so that packages may be imported from it. ``seal``: the record's."""
    expected = directory_seal(folder, str(directory))
    return expected is not None and isinstance(seal, str) and hmac.compare_digest(seal.encode(), expected.encode())


def is_own_code(folder: RunFolder, commit: object, diff: bytes, seal: object) -> bool:
    """Whether the user recorded this code with this run, or took it over. ``seal``: that of the record."""
    expected = code_seal(folder, commit, diff)
    if expected is not None and isinstance(seal, str) and hmac.compare_digest(seal.encode(), expected.encode()):
        return True
    return is_taken_over(_CODE, json.dumps(_about(folder, commit, diff)).encode())


def _about(folder: RunFolder, commit: object, diff: bytes) -> tuple[str, str, str]:
    """What a seal covers: run.yaml is included, so that one run's code is not valid for another."""
    config = folder.config_content() if folder.config.exists() else b""
    return (hashlib.sha256(config).hexdigest(), str(commit), hashlib.sha256(diff).hexdigest())


def _name(folder: Path) -> bytes:
    return str(folder).encode(errors="surrogateescape")
