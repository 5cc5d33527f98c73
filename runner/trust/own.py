"""What is the user's own, and whom he trusts: packages by name, what he typed or recorded, what he took over."""

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
    """``packages``: dotted names, each for all that is below it too; ``own``: keys with values that are the user's.

    ``place``: the foreign folder that the config is from, where one exists.
    """

    packages: tuple[str, ...] = ()
    own: tuple[tuple[str, Any], ...] = ()
    place: Path | None = None

    def covers(self, name: str) -> bool:
        """my_package covers my_package and my_package.x, not my_package_2."""
        return any(name == package or name.startswith(f"{package}.") for package in self.packages)

    def how_to_own(self) -> str:
        """The command by which the user takes it over, as the end of an error."""
        if self.place is None:
            return ""
        return f" If it is your own, run once: {called.command('trust', self.place)}"

    def is_own(self, key: str, value: Any) -> bool:
        return (key, value) in self.own


def split_typed(arguments: Iterable[str]) -> tuple[list[str], list[str]]:
    """What ``trust=...`` among the arguments names, and the other arguments. Raises ConfigurationError."""
    typed, others = [], []
    for argument in arguments:
        if match := _TYPED.fullmatch(argument):
            typed += names(match[1].strip().removeprefix("[").removesuffix("]"), said=argument)
        else:
            others.append(argument)
    return typed, others


def trusted_packages(typed: Iterable[str] = ()) -> tuple[str, ...]:
    """Those of the user's file, of the environment, and ``typed`` ones. Raises ConfigurationError."""
    variable = os.environ.get(VARIABLE, "")
    return (*of_file(), *names(variable, said=f"{VARIABLE}={variable}"), *typed)


def file() -> Path | None:
    """Where the user says whom he trusts for good."""
    folder = user_folder("config")
    return None if folder is None else folder / FILE


def of_file() -> list[str]:
    """The packages in ~/.config/manyheads.yaml. Raises ConfigurationError when it says anything else."""
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
    """Package names with commas between them. Raises ConfigurationError, which shows what was ``said``."""
    found = [name.strip().strip("'\"") for name in text.split(",")]
    found = [name for name in found if name]
    if not all(map(NAME.fullmatch, found)):
        raise ConfigurationError(f"{said} is not the name of a package. {_ALLOWED}, separated by commas.")
    return found


def own_project(folder: Path) -> Path:
    """The folder of configs that trusting ``folder`` is about: that of its project, else itself."""
    return (conf_of(folder) or folder).resolve()


def conf_of(folder: Path) -> Path | None:
    """A project's folder of configs: what its pyproject.toml names as [tool.manyheads] conf, else its conf/.

    Raises ConfigurationError for one that is named and does not exist.
    """
    try:
        content: Any = tomllib.loads(read_text(folder / "pyproject.toml", most=10**6))
        named = content.get("tool", {}).get("manyheads", {}).get("conf")
    except (
        OSError,
        ValueError,
        AttributeError,
        RecursionError,
    ):  # whatever else reads that file will say what is wrong
        named = None
    conf = folder / (named if isinstance(named, str) else "conf")
    if named is not None and not conf.is_dir():
        raise ConfigurationError(
            f"{printable(folder / 'pyproject.toml')}: [tool.manyheads] conf = {printable(repr(named))} is not a folder."
        )
    return conf if conf.is_dir() else None


def trust_project(folder: Path) -> None:
    """From now on these configs, and those in folders below, are the user's own. Raises OSError."""
    take_over(_PROJECT, _name(own_project(folder)))


def is_own_project(folder: Path) -> bool:
    """Whether the user has said so of this folder, or of one that it lies in."""
    path = folder.resolve()
    return any(is_taken_over(_PROJECT, _name(each)) for each in (path, *path.parents))


def trust_run(folder: RunFolder, commit: object, diff: bytes) -> None:
    """From now on this run's config, and the code that it was recorded with, are the user's own. Raises OSError."""
    for path in (folder.config, folder.composed):
        if path.exists():
            take_over(path.name, read_bytes(path))
    take_over(_CODE, json.dumps(_about(folder, commit, diff)).encode())


def code_seal(folder: RunFolder, commit: object, diff: bytes) -> str | None:
    """By what a run's record shows that commit and changes are those it was started from."""
    return seal_of(_CODE, *_about(folder, commit, diff))


def directory_seal(folder: RunFolder, directory: str) -> str | None:
    """By what a run's record shows that it was started in this directory."""
    config = folder.config_content() if folder.config.exists() else b""
    return seal_of("directory", hashlib.sha256(config).hexdigest(), directory)


def is_own_directory(folder: RunFolder, directory: object, seal: object) -> bool:
    """Whether the user started this run there, so that his packages can be looked for in it. ``seal``: the record's."""
    expected = directory_seal(folder, str(directory))
    return expected is not None and isinstance(seal, str) and hmac.compare_digest(seal.encode(), expected.encode())


def is_own_code(folder: RunFolder, commit: object, diff: bytes, seal: object) -> bool:
    """Whether the user recorded this code with this run, or took it over. ``seal``: the record's."""
    expected = code_seal(folder, commit, diff)
    if expected is not None and isinstance(seal, str) and hmac.compare_digest(seal.encode(), expected.encode()):
        return True
    return is_taken_over(_CODE, json.dumps(_about(folder, commit, diff)).encode())


def _about(folder: RunFolder, commit: object, diff: bytes) -> tuple[str, str, str]:
    """The run.yaml is part of it, so that the code of one run is none of another."""
    config = folder.config_content() if folder.config.exists() else b""
    return (hashlib.sha256(config).hexdigest(), str(commit), hashlib.sha256(diff).hexdigest())


def _name(folder: Path) -> bytes:
    return str(folder).encode(errors="surrogateescape")
