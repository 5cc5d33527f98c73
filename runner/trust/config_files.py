"""Checks other people's config files before Hydra composes them: none may reach Hydra's own section.

That section names what Hydra imports and calls (callbacks, launcher, sweeper, logging) and where it writes. A file can
reach it by a top-level key, by a package (in its header, or after an @ in a defaults list), or by a group of that name.
Names in defaults lists may not leave the folder either, nor enter hidden folders, which are not read here.
"""

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

from hydra.plugins.config_source import ConfigSource
from omegaconf._utils import get_yaml_loader  # Hydra's own: another parser might read a file differently

from manyheads.runner.run.data_files import parse_yaml
from manyheads.runner.run.errors import ConfigurationError
from manyheads.runner.trust.check import shown

ENTRIES = 10_000  # files and folders in a folder of configs
BYTES = 500_000  # of YAML in it, a few seconds to read
CHARACTERS = 50_000  # in a file: a run config has 4,000
_RESOLVER = re.compile(r"\$\{.*:", re.DOTALL)  # a resolver's name may be built from other keys
HEADER = 512  # characters that Hydra searches for @package

_NAME = r"\w[\w.=+,-]*"
_PATH = rf"{_NAME}(/{_NAME})*"
_ENTRY = re.compile(rf"((optional|override) +)*/?{_PATH}(@\w[\w.]*)?")
# References to names of options, which cannot form a name with a dot or a slash, since no option has one.
_VALUE = re.compile(rf"{_PATH}|\?\?\?|[\w-]*(\$\{{\w[\w/]*\}}[\w-]*)+")


class ConfigFile(NamedTuple):
    """A file's content, and the package in its header."""

    content: Any
    package: str | None


def read_config_file(path: Path) -> ConfigFile:
    """Read a file as Hydra would. Raises ConfigurationError if it is too large or not YAML; OSError."""
    with open(path, encoding="utf-8") as file:
        try:
            text = file.read(CHARACTERS + 1)
            if len(text) > CHARACTERS:
                raise ValueError(f"it has more than {CHARACTERS} characters")
            package = ConfigSource._get_header_dict(text[:HEADER])["package"]
            return ConfigFile(parse_yaml(text, get_yaml_loader()), package)
        except Exception as error:  # YAML's constructors raise anything, RecursionError included
            reason = " ".join(str(error).split()) or type(error).__name__
            raise ConfigurationError(f"a config cannot be read: {shown(path)}: {reason}.") from None


def refuse_hydra_files(folder: Path) -> None:
    """Raises ConfigurationError, which names file and key, if any config in the folder reaches Hydra's section."""
    try:
        for path in _config_files(folder.resolve()):
            _refuse_hydra_file(path)
    except OSError as error:
        raise ConfigurationError(f"{shown(error.filename)} cannot be read: {error.strerror}.") from None


def refuse_content(path: Path, content: Any) -> None:
    """Raises ConfigurationError if a file has Hydra's section among its keys, or a value that is not plain."""
    if content is not None and not isinstance(content, dict):
        raise ConfigurationError(f"{shown(path)} is not a config: it is not a mapping.")
    for key in content or {}:
        if _leads_to_hydra(key):
            _refuse(path, key)
    for value in _values(content):
        if isinstance(value, int) and abs(value) >= 2**64:
            raise ConfigurationError(f"{shown(path)} holds a number of more than 64 bits. Remove it.")
        if isinstance(value, str) and not value.replace("\n", "").replace("\t", "").isprintable():
            raise ConfigurationError(f"{shown(path)}: {shown(value)} has control characters. Remove them.")
        if isinstance(value, str) and _RESOLVER.search(value):
            raise ConfigurationError(
                f"{shown(path)}: {shown(value)}: a config that you did not create on this machine cannot ask for "
                "environment variables, or call any other resolver. Allowed: references to other keys, as ${seed}. "
                "Type the value on the command line."
            )


def _values(content: Any) -> Iterator[Any]:
    """All keys and values, at any depth."""
    if isinstance(content, dict):
        for key, item in content.items():
            yield key
            yield from _values(item)
    elif isinstance(content, (list, tuple, set)):
        for item in content:
            yield from _values(item)
    else:
        yield content


def _refuse_hydra_file(path: Path) -> None:
    content, package = read_config_file(path)
    refuse_content(path, content)
    if _leads_to_hydra(package):
        _refuse(path, f"@package {package}")
    entries = (content or {}).get("defaults", [])
    if not isinstance(entries, list):  # an interpolation would become one
        raise ConfigurationError(f"{shown(path)}: defaults is not a list.")
    for entry in entries:
        _refuse_entry(path, entry)


def _refuse_entry(path: Path, entry: Any) -> None:
    """Check one line of a defaults list: ``config``, ``group: option`` or ``group: [option, ...]``."""
    (key, value), *more = entry.items() if isinstance(entry, dict) and entry else [(entry, None)]
    values = value if isinstance(value, list) else [] if value is None else [value]
    if any(map(_leads_to_hydra, (key, *values))):
        _refuse(path, f"defaults: {entry}")
    well_named = not more and isinstance(key, str) and _ENTRY.fullmatch(key)
    if not well_named or not all(isinstance(each, str) and _VALUE.fullmatch(each) for each in values):
        raise ConfigurationError(
            f"{shown(path)}: defaults: {shown(entry)} is not allowed in a config that you did not create on this "
            "machine. Allowed: names of groups and options below its folder, without .. and without hidden folders, "
            "and for an option also ${group}."
        )


def _leads_to_hydra(name: Any) -> bool:
    """Whether a key, package or path has a part named hydra, in any case, since some file systems ignore case."""
    return "hydra" in re.split(r"[^\w-]+", str(name).lower())


def _refuse(path: Path, what: object) -> NoReturn:
    raise ConfigurationError(
        f"{shown(path)}: {shown(what)}: a config that you did not create on this machine cannot change Hydra's own "
        "section, which can run code and write files anywhere. Remove it from the file; set what you need on the "
        "command line, as hydra.<key>=<value>."
    )


def _config_files(root: Path) -> Iterator[Path]:
    """Each file that Hydra can take for a config. Raises ConfigurationError for misleading names and links."""
    entries = size = 0
    for parent, folders, files in os.walk(root, onerror=_raise):
        folders[:] = [name for name in folders if not name.startswith(".")]
        for name in (*folders, *files):
            _refuse_link(Path(parent, name), root)
        for name in folders:
            if _leads_to_hydra(name):
                _refuse(Path(parent, name), "a folder of that name")
        configs = [path for name in files if (path := Path(parent, name)).suffix.lower() == ".yaml" and path.is_file()]
        entries += len(folders) + len(files)
        size += sum(path.stat().st_size for path in configs)
        if entries > ENTRIES or size > BYTES:
            raise ConfigurationError(
                f"{shown(root)} contains more than {ENTRIES} files and folders, or {BYTES} bytes of YAML. Name a "
                "folder that holds the configs only."
            )
        yield from configs


def _refuse_link(path: Path, root: Path) -> None:
    if path.is_symlink():
        target = path.resolve()
        if not target.is_relative_to(root) or any(part.startswith(".") for part in target.relative_to(root).parts):
            raise ConfigurationError(
                f"{shown(path)} points outside {shown(root)} or into a hidden folder, and these configs were not "
                "created by you on this machine. Remove that link."
            )


def _raise(error: OSError) -> None:
    """A folder that can't be listed may still be entered."""
    raise error
