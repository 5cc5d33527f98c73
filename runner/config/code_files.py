"""Classes in files, ``net.py:Net``, as a ``_target_`` may name them, typed or in a project's configs.

A file is parsed, but never executed, to find out what it defines.
"""

import ast
import os
import re
from collections.abc import Iterator, Sequence
from importlib.machinery import PathFinder
from pathlib import Path
from typing import Any

from manyheads.runner.errors import ConfigurationError
from manyheads.runner.option.locate import own_folders
from manyheads.runner.option.source_file import source_file
from manyheads.runner.wording import nearest

NAMED = r"\.py:[^\W\d]\w*"
KIND = "custom"  # the option of a group that takes any class
_RELATIVE = re.compile(rf"(?!/)[^\0]*[^/\0]{NAMED}")


def absolute(key: str, target: Any, *, projects: Sequence[Path]) -> Any:
    """What a key names, with the absolute path of a file that is named relative to a project; anything else unchanged.

    Raises ConfigurationError if several of the projects have the file. A file that none has is expected in the first.
    """
    if not (isinstance(target, str) and projects and _RELATIVE.fullmatch(target)):
        return target
    typed, _, name = target.rpartition(":")
    paths = list(dict.fromkeys(os.path.normpath(project / Path(typed).expanduser()) for project in projects))
    files = [path for path in paths if os.path.isfile(path)] or paths[:1]
    if len(files) > 1:
        raise ConfigurationError.at(
            key, f"{typed}:{name}", f" could be {' or '.join(files)}. Set it to the path of one of them."
        )
    return f"{files[0]}:{name}"


def check_files(named: Sequence[tuple[str, Any]]) -> None:
    """Raises ConfigurationError for a file that is missing, or that does not define the class that a key names.

    Also for a module of the user's own package that does not define it. ``named``: keys with what they name, from
    ``targets``.
    """
    for key, target in named:
        if (file := source_file(target)) is not None:
            refuse_undefined(f"{key}={file.path}:{file.name}", file.path, file.name)
    for key, target in named:
        if (module := _own_module(target)) is not None:
            refuse_undefined(f"{key}={target}", module, target.rpartition(".")[2])


def _own_module(target: Any) -> Path | None:
    """The file of the module in which a dotted name is looked up, if it is in a folder of the user's."""
    package, *inner = str(target).split(".")[:-1] or [""]
    if not package.isidentifier() or PathFinder.find_spec(package) is not None:
        return None
    for folder in own_folders():
        if PathFinder.find_spec(package, [folder]) is not None:
            path = Path(folder, package, *inner)
            return next((file for file in (path / "__init__.py", path.with_suffix(".py")) if file.is_file()), None)
    return None


def refuse_undefined(setting: str, path: Path, name: str, *, typed: str | None = None) -> None:
    """Raises ConfigurationError, which quotes ``setting``, unless the file at ``path`` may define ``name``.

    typed: the path as the user wrote it.
    """
    typed = str(path) if typed is None else typed
    key, _, value = setting.partition("=")
    named: Any = {"key": key, "value": value} if value else {}
    try:
        tree = ast.parse(path.read_bytes(), filename=str(path))
    except (FileNotFoundError, NotADirectoryError):
        beside = [str(Path(typed).with_name(other.name)) for other in path.parent.glob("*.py")]
        raise ConfigurationError(f"{setting}: there is no file {typed}.{nearest(typed, beside)}", **named) from None
    except OSError as error:
        raise ConfigurationError(f"{setting}: {typed} cannot be read: {error.strerror}.", **named) from None
    except (SyntaxError, ValueError) as error:
        where = f" in line {error.lineno}" if isinstance(error, SyntaxError) and error.lineno else ""
        raise ConfigurationError(f"{setting}: {typed} is not valid Python{where}: {error}.", **named) from None
    defined = set(_defined(tree))
    if not {name, "*", "__getattr__"} & defined:
        definitions = [node.name for node in tree.body if isinstance(node, (ast.ClassDef, ast.FunctionDef))]
        hint = f" It defines {', '.join(definitions)}." if definitions else ""
        message = f"{setting}: {typed} has no {name}.{nearest(name, defined)}{hint} Check the name."
        raise ConfigurationError(message, **named)


def _defined(node: ast.AST) -> Iterator[str]:
    """The names that a module's statements may define, including those in if and try; * for a wildcard import."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            yield child.name
        elif isinstance(child, ast.alias):
            yield child.asname or child.name.partition(".")[0]
        elif isinstance(child, ast.Name) and isinstance(child.ctx, ast.Store):
            yield child.id
        else:
            yield from _defined(child)
