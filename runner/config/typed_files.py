"""The user's own file as an option of a group, typed on the command line: ``model=my_model.py:Net``.

It is the group's option ``custom`` with the class in that file as its ``_target_``. It is registered in Hydra's store,
like a saved config, so it can be swept over and its keys can be set. The file is parsed, but never executed, to find
out what it defines.
"""

import ast
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from hydra.core.config_store import ConfigStore

from manyheads.runner.config.arguments import CommandLine, quoted
from manyheads.runner.config.lookup import options, read_option
from manyheads.runner.option.declared import GROUPS
from manyheads.runner.run.errors import ConfigurationError
from manyheads.runner.run.locate import TARGET
from manyheads.runner.run.nearest import nearest

_NAMED = r"\.py:[^\W\d]\w*"
_PLAIN = r"""[^\s,'"\[\]{}()=][^,'"\[\]{}()=]*?"""
_FILE = rf"""(?:'([^'\\]+{_NAMED})'|"([^"\\]+{_NAMED})"|({_PLAIN}{_NAMED})(?![^\s,\]}})]))"""
_BARE = re.compile(rf"[^=]*[^=/]{_NAMED}")
KIND = "custom"  # the option of a group that takes any class


class Typed(NamedTuple):
    """The command line in a form that Hydra accepts, and the keys and values that the user has typed by it."""

    line: CommandLine
    own: tuple[tuple[str, str], ...]


def offer_files(line: CommandLine) -> Typed:
    """Register the files among the overrides with Hydra as options. A file without a group is a model.

    Raises ConfigurationError for a file that does not exist, or that does not define what is named.
    """
    offered: dict[str, str] = {}  # targets by group and option
    rewritten = {each: _rewritten(each, line, offered) for each in line.overrides}
    arguments = tuple(rewritten.get(each, each) for each in line.arguments)
    own = tuple((f"{option.partition('=')[0]}.{TARGET}", target) for option, target in offered.items())
    return Typed(CommandLine(arguments, line.home), own)


def _rewritten(override: str, line: CommandLine, offered: dict[str, str]) -> str:
    override = f"model={quoted(override)}" if _BARE.fullmatch(override) else override
    key, equals, value = override.partition("=")
    name = key.lstrip("+")
    if not equals or not re.search(_FILE, value):
        return override
    if name.rpartition(".")[2] == TARGET:
        return f"{key}={re.sub(_FILE, lambda match: quoted(_target(override, match)), value)}"
    if name in GROUPS and KIND in options(name):
        return f"{key}={re.sub(_FILE, lambda match: _option(name, _target(override, match), line, offered), value)}"
    return override


def _target(override: str, match: re.Match) -> str:
    """The ``_target_`` for a typed file. Raises ConfigurationError."""
    typed, _, name = next(filter(None, match.groups())).rpartition(":")
    path = Path(os.path.abspath(os.path.expanduser(typed)))
    try:
        tree = ast.parse(path.read_bytes(), filename=str(path))
    except (FileNotFoundError, NotADirectoryError):
        beside = [str(Path(typed).with_name(other.name)) for other in path.parent.glob("*.py")]
        raise ConfigurationError(f"{override}: there is no file {typed}.{nearest(typed, beside)}") from None
    except OSError as error:
        raise ConfigurationError(f"{override}: {typed} cannot be read: {error.strerror}.") from None
    except (SyntaxError, ValueError) as error:
        where = f" in line {error.lineno}" if isinstance(error, SyntaxError) and error.lineno else ""
        raise ConfigurationError(f"{override}: {typed} is not valid Python{where}: {error}.") from None
    defined = set(_defined(tree))
    if not {name, "*", "__getattr__"} & defined:
        own = [each.name for each in tree.body if isinstance(each, (ast.ClassDef, ast.FunctionDef))]
        known = f" It defines {', '.join(own)}." if own else ""
        raise ConfigurationError(f"{override}: {typed} has no {name}.{nearest(name, defined)}{known} Check the name.")
    return f"{path}:{name}"


def _defined(node: ast.AST) -> Iterator[str]:
    """The names that a module's statements may define, including those in if and try; * for a wildcard import."""
    for each in ast.iter_child_nodes(node):
        if isinstance(each, (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            yield each.name
        elif isinstance(each, ast.alias):
            yield each.asname or each.name.partition(".")[0]
        elif isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store):
            yield each.id
        else:
            yield from _defined(each)


def _option(group: str, target: str, line: CommandLine, offered: dict[str, str]) -> str:
    """The option's name, from those of the file and the class, since Hydra accepts no slashes or hidden folders."""
    path, _, name = target.rpartition(":")
    parts = [re.sub(r"[^A-Za-z0-9_.-]", "_", part.lstrip(".")) for part in Path(path).parts[1:]]
    for count in range(1, len(parts) + 1):  # folders distinguish files of the same name
        option = f"{'.'.join(parts[-count:])}:{name}"
        if offered.setdefault(f"{group}={option}", target) == target:
            break
    else:
        raise ConfigurationError(f"{group}={option} would be two files. Rename one of them.")
    for source in line.sources():  # a file there would be found first
        if source.folder is not None and (source.folder / group / f"{option}.yaml").exists():
            raise ConfigurationError(f"{group}={option} is also a config in {source.folder}. Rename one of them.")
    section = {**read_option(group, KIND), TARGET: target, "name": name}
    ConfigStore.instance().store(group=group, name=option, node=section)
    return option
