"""The user's own file as an option of a group, typed on the command line: ``model=my_model.py:Net``.

It is the group's option ``custom`` with the class in that file as its ``_target_``. It is registered in Hydra's store,
like a saved config, so it can be swept over and its keys can be set.
"""

import os
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from hydra.core.config_store import ConfigStore

from manyheads.runner.config.code_files import KIND, NAMED, refuse_undefined
from manyheads.runner.config.command_line import CommandLine
from manyheads.runner.config.lookup import options, read_option
from manyheads.runner.config.quoting import quoted
from manyheads.runner.errors import ConfigurationError
from manyheads.runner.option.declared import GROUPS
from manyheads.runner.option.tree import TARGET, Section

_PLAIN = r"""[^\s,'"\[\]{}()=][^,'"\[\]{}()=]*?"""
_FILE = rf"""(?:'([^'\\]+{NAMED})'|"([^"\\]+{NAMED})"|({_PLAIN}{NAMED})(?![^\s,\]}})]))"""
_IN_MAPPING = rf"({TARGET}\s*:\s*){_FILE}"
_BELOW_A_KEY = rf"(?!hydra\.)\w+\.\w+\.(.*\.)?{TARGET}"
_BARE = re.compile(rf"[^=]*[^=/]{NAMED}")


class Typed(NamedTuple):
    """The command line in a form that Hydra accepts. ``own``: the keys and values that the user set by naming files."""

    line: CommandLine
    own: tuple[tuple[str, str], ...]


def offer_files(line: CommandLine) -> Typed:
    """Register the files among the overrides with Hydra as options. A file without a group is a model.

    Raises ConfigurationError for a file that does not exist, or that does not define what is named.
    """
    offered: dict[str, str] = {}  # targets by group and option
    rewritten = {override: _rewritten(override, line, offered) for override in line.overrides}
    arguments = tuple(rewritten.get(argument, argument) for argument in line.arguments)
    targets = tuple((f"{option.partition('=')[0]}.{TARGET}", target) for option, target in offered.items())
    return Typed(CommandLine(arguments, line.home), targets)


def refuse_replaced(config: Section, typed: Sequence[tuple[str, str]]) -> None:
    """Raises ConfigurationError for a file chosen as an option whose class an experiment replaces.

    config: as it will run. typed: ``Typed.own``.
    """
    for key, target in typed:
        group, name = key.partition(".")[0], target.rpartition(":")[2]
        targets = [other for others, other in typed if others == key]
        section = config.get(group, {})
        if section.get("name") == name and section.get(TARGET) not in targets:
            raise ConfigurationError.at(
                group,
                target,
                f": {key}={section.get(TARGET)}, set by an experiment or typed, would replace it. Set {key}={target} "
                f"instead of {group}, or remove {TARGET} there.",
            )


def _rewritten(override: str, line: CommandLine, offered: dict[str, str]) -> str:
    override = f"model={quoted(override)}" if _BARE.fullmatch(override) else override
    key, equals, value = override.partition("=")
    name = key.lstrip("+")
    if re.fullmatch(_BELOW_A_KEY, key):
        key = f"++{key}"  # what is null by default has no keys that Hydra could set
    if not equals or not re.search(_FILE, value):
        return f"{key}{equals}{value}"
    if re.search(_IN_MAPPING, value):
        inner = re.sub(_IN_MAPPING, lambda match: match[1] + quoted(_target(override, match.groups()[1:])), value)
        return f"{key}={inner}"
    if name.rpartition(".")[2] == TARGET:
        return f"{key}={re.sub(_FILE, lambda match: quoted(_target(override, match.groups())), value)}"
    if name in GROUPS and KIND in options(name):
        rewritten = re.sub(_FILE, lambda match: _option(name, _target(override, match.groups()), line, offered), value)
        return f"{key}={rewritten}"
    return override


def _target(override: str, written: Iterable[str | None]) -> str:
    """The ``_target_`` for a typed file. Raises ConfigurationError."""
    typed, _, name = next(filter(None, written)).rpartition(":")
    path = Path(os.path.abspath(os.path.expanduser(typed)))
    refuse_undefined(override, path, name, typed=typed)
    return f"{path}:{name}"


def _option(group: str, target: str, line: CommandLine, offered: dict[str, str]) -> str:
    """The option's name, from the file's path and the class: Hydra accepts no slashes or hidden folders in it."""
    path, _, name = target.rpartition(":")
    parts = [re.sub(r"[^A-Za-z0-9_.-]", "_", part.lstrip(".")) for part in Path(path).parts[1:]]
    for count in range(1, len(parts) + 1):  # folders distinguish files of the same name
        option = f"{'.'.join(parts[-count:])}:{name}"
        if offered.setdefault(f"{group}={option}", target) == target:
            break
    else:
        raise ConfigurationError.at(group, option, " would be two files. Rename one of them.")
    for source in line.sources():  # a file there would be found first
        if source.folder is not None and (source.folder / group / f"{option}.yaml").exists():
            raise ConfigurationError.at(group, option, f" is also a config in {source.folder}. Rename one of them.")
    section = {**read_option(group, KIND), TARGET: target, "name": name}
    ConfigStore.instance().store(group=group, name=option, node=section)
    return option
