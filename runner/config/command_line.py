"""The command line of ``train`` as an immutable value, parsed by Hydra's own parser."""

import os
import sys
from argparse import Namespace
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

from hydra._internal.utils import get_args_parser  # the only way to know which arguments are overrides

from manyheads.runner.config.lookup import CONF, NAMED, Folders, known_keys, options, package_folder, read_option
from manyheads.runner.config.quoting import quoted, readable
from manyheads.runner.errors import ConfigurationError, UnknownName
from manyheads.runner.option.declared import GROUPS
from manyheads.runner.wording import refused_arguments

SEARCHPATH = "hydra.searchpath"


class Source(NamedTuple):
    """A folder that Hydra searches. ``named_by``: flag or key; ``place``: as typed; ``folder``: None for a package."""

    named_by: str
    place: str
    folder: Path | None


class _Word(str):
    """An argument that is told from others with the same text by its identity."""


@dataclass(frozen=True)
class CommandLine:
    """A command line of ``train``. ``arguments``: as Hydra reads them; ``home``: what --config-path is relative to.

    Texts that Hydra could not read are quoted, and overrides that flags separate are joined, after the flags. Prints
    the usage and raises ConfigurationError if the arguments cannot be parsed, and raises it for a group left out.
    """

    arguments: tuple[str, ...]
    home: Path = CONF.parent
    flags: Namespace = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        parser = get_args_parser()

        def refuse(message: str) -> NoReturn:
            parser.print_usage(sys.stderr)
            raise refused_arguments(message)

        parser.error = refuse  # type: ignore[method-assign]
        words = [_Word(argument) for argument in self.arguments]
        flags, rest = parser.parse_known_args(words)
        if flag := next((argument for argument in rest if argument.startswith("-")), None):
            parser.print_usage(sys.stderr)
            raise _no_such_flag(flag, *self.arguments[self.arguments.index(flag) + 1 :][:1])
        typed = {id(word) for word in (*flags.overrides, *rest)}
        if rest:
            words.sort(key=lambda word: id(word) in typed)
        arguments = [_added(readable(str(word))) if id(word) in typed else str(word) for word in words]
        flags.overrides = [argument for word, argument in zip(words, arguments, strict=True) if id(word) in typed]
        for override in flags.overrides:
            _refuse_left_out(override)
        object.__setattr__(self, "arguments", tuple(arguments))
        object.__setattr__(self, "flags", flags)

    @classmethod
    def of(cls, overrides: Iterable[str], config_dir: str | None) -> "CommandLine":
        """The command line of another command, which accepts only --config-dir of Hydra's flags."""
        return cls((*overrides, *(() if config_dir is None else ("--config-dir", config_dir))))

    @property
    def overrides(self) -> tuple[str, ...]:
        """All arguments that are not flags: ``group=option``, ``key=value``."""
        return tuple(self.flags.overrides)

    @property
    def chosen(self) -> set[str]:
        """The keys and groups that are set."""
        return {override.partition("=")[0].lstrip("+") for override in self.overrides}

    @property
    def config_folder(self) -> Path:
        """The folder in which Hydra looks for the primary config first."""
        path = self.flags.config_path
        if path is None:
            return CONF
        return Path(path) if os.path.isabs(path) else Path(os.path.normpath(self.home / path))

    @property
    def config_name(self) -> str:
        """The primary config, without its suffix."""
        return (self.flags.config_name or "config").removesuffix(".yaml")

    @property
    def primary(self) -> Path:
        """The file of the primary config."""
        return self.config_folder / f"{self.config_name}.yaml"

    def sources(self) -> Iterator[Source]:
        """Folders that Hydra searches besides its own and, unless --config-path is set, conf/."""
        if (path := self.flags.config_path) is not None:
            yield Source("--config-path", path, None if path.startswith("pkg://") else self.config_folder)
        if (path := self.flags.config_dir) is not None:
            yield Source("--config-dir", path, Path(os.path.abspath(path)))
        for override in parsed(o for o in self.overrides if SEARCHPATH in o):
            value = override.value()
            for location in value if isinstance(value, list) else []:
                scheme, separator, path = str(location).partition("://")
                folder = Path(path if separator else location) if scheme == "file" or not separator else None
                yield Source(SEARCHPATH, str(location), folder)

    @property
    def folders(self) -> Folders:
        """The folders in which options are looked up: this project's and those of ``sources``. Imports packages."""
        named = [
            source.folder or (package_folder(source.place.partition("://")[2]) if "://" in source.place else None)
            for source in self.sources()
        ]
        return tuple(dict.fromkeys((CONF, *(folder for folder in named if folder is not None))))

    def without(self, overrides: Iterable[str]) -> "CommandLine":
        """The command line without these overrides."""
        left_out = set(overrides)
        return CommandLine(tuple(argument for argument in self.arguments if argument not in left_out), self.home)

    def adding(self, override: str) -> "CommandLine":
        """The command line with one more override."""
        return CommandLine((*self.arguments, override), self.home)

    def searching(self, folder: Path) -> "CommandLine":
        """The command line that makes Hydra look for configs in ``folder`` too, after the other folders."""
        if self.flags.config_dir is None:
            return CommandLine((*self.arguments, "--config-dir", str(folder)), self.home)
        typed = [override for override in self.overrides if override.startswith(f"{SEARCHPATH}=[")]
        if not typed:
            return self.adding(searching([folder]))
        longer = {override: f"{override.rstrip().removesuffix(']')},{_place(folder)}]" for override in typed}
        return CommandLine(tuple(longer.get(argument, argument) for argument in self.arguments), self.home)

    def absolute(self) -> "CommandLine":
        """The command line with an absolute --config-path, which Hydra would resolve against the code's own folder."""
        path = self.flags.config_path
        if path is None or path.startswith("pkg://"):
            return self
        return CommandLine((*self.arguments, "--config-path", str(self.config_folder)), self.home)

    def composing(self, folder: Path, name: str) -> "CommandLine":
        """The command line with another primary config."""
        flags = ("--config-path", str(folder), "--config-name", name)  # if a flag is given twice, the last one counts
        return CommandLine((*self.arguments, *flags), self.home)


def _no_such_flag(flag: str, after: str = "") -> UnknownName:
    """The error for a flag that Hydra does not have. ``after``: the argument that follows it."""
    name, equals, value = flag.lstrip("-").partition("=")
    key = name.replace("-", "_")
    value = value if equals else ("<value>" if not after or "=" in after or after.startswith("-") else after)
    keys = (
        [key]
        if key in known_keys()
        else [known_key for known_key in known_keys() if known_key.rpartition(".")[2] == key][:1]
    )
    how = f"Keys are set without dashes: {keys[0]}={value}" if keys else "--help lists them."
    return UnknownName(f"{flag}: there is no such flag. {how}", key=flag.partition("=")[0])


def _added(override: str) -> str:
    """The override, which adds its key if an option leaves that mapping empty: ``data.columns.price=number``."""
    key, _, value = override.partition("=")
    group, *keys = key.split(".")
    if group not in GROUPS or len(keys) < (1 if value.startswith("{") else 2):
        return override
    takes = any(read_option(group, option).get(keys[0]) == {} for option in options(group))
    return f"++{override}" if takes else override


def _refuse_left_out(override: str) -> None:
    group = override.partition("=")[0].removeprefix("~")
    if override.startswith("~") and group in (*GROUPS, *NAMED):
        how = f"Write {group}=[]." if group in NAMED else f"Allowed: {', '.join(options(group))}."
        raise ConfigurationError(f"~{group}: a group cannot be left out. {how}", key=group)


def searching(folders: Iterable[Path]) -> str:
    """The override that makes Hydra look for configs in these folders too."""
    return f"{SEARCHPATH}=[{','.join(map(_place, folders))}]"


def _place(folder: Path) -> str:
    return quoted(f"file://{folder}")


def parsed(overrides: Iterable[str]) -> Iterator[Any]:
    """The overrides as parsed by Hydra; invalid ones are skipped, since Hydra itself reports them."""
    from hydra.core.override_parser.overrides_parser import OverridesParser
    from hydra.errors import HydraException

    for override in overrides:
        try:
            yield OverridesParser.create().parse_override(override)
        except HydraException:
            continue


def typed_values(overrides: Iterable[str]) -> dict[str, Any]:
    """The value that each override sets, by key, as Hydra reads it; without sweeps and deletions."""
    single = (word for word in parsed(overrides) if not word.is_sweep_override() and not word.is_delete())
    return {word.key_or_group: choices(word)[0] for word in single}


def choices(override: Any) -> list[Any]:
    """The values that a parsed override sets its key to: one, or all those of a sweep."""
    from hydra.core.override_parser.types import ChoiceSweep, Override

    value = override.value()
    return [Override._convert_value(element) for element in (value.list if isinstance(value, ChoiceSweep) else [value])]
