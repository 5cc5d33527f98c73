"""Imports and creates the objects that the run config names; errors are reported as mistakes in the config."""

import importlib
import inspect
import os
import re
import sys
from collections.abc import Collection, Mapping
from importlib.machinery import PathFinder
from importlib.util import find_spec
from pkgutil import iter_modules
from typing import Any

from manyheads.runner.errors import ConfigurationError
from manyheads.runner.option.source_file import source_file
from manyheads.runner.option.tree import OPTION, TARGET, Section, packages_named
from manyheads.runner.wording import nearest, similar, suggest

STARTED_IN = "MANYHEADS_STARTED_IN"  # for this process and the ranks: where a past run of the user's was started


def own_folders() -> list[str]:
    """The folder of the user's packages: the working directory; for a past run, only that in which it was started.

    Names in a past run do not depend on the directory that it is resumed from, which somebody may have sent.
    """
    started = os.environ.get(STARTED_IN)
    return [os.getcwd()] if started is None else [started] if started else []


def find_in_own_folders(config: Section) -> None:
    """Make classes that a run config names importable from ``own_folders``, after everything that is installed.

    Somebody may have sent such a folder, so it is added only if one of their packages is in it and nowhere else.
    """
    for folder in own_folders():
        if any(
            PathFinder.find_spec(package) is None and PathFinder.find_spec(package, [folder])
            for package in packages_named(config)
        ):
            sys.path.append(folder)


def load(name: str) -> Any:
    """Import the object named ``module.attribute`` or ``/path/to/file.py:attribute``.

    Raises ImportError, AttributeError, ValueError or FileNotFoundError.
    """
    if file := source_file(name):
        return file.load()
    module, _, attribute = name.rpartition(".")
    return getattr(importlib.import_module(module), attribute)


def locate(group: str, target: str, *, key: str = "_target_") -> Any:
    """The class that ``<group>.<key>`` names, also one in the working directory, or in a file.

    Raises ConfigurationError.
    """
    if (file := source_file(target)) and not file.in_use().is_file():
        raise ConfigurationError.at(
            f"{group}.{key}", target, ": there is no such file. Restore it, or name another one."
        )
    if target.partition(".")[0] not in sys.modules:
        find_in_own_folders({key: target})
    try:
        return load(target)
    except ModuleNotFoundError as error:
        raise ConfigurationError.at(
            f"{group}.{key}",
            target,
            f" can't be imported: {error}.{_modules_like(error.name or '')} Install the package, "
            "or start from the folder that contains it.",
        ) from None
    except ImportError as error:
        if file is None or "relative import" not in str(error):
            raise
        raise ConfigurationError.at(
            f"{group}.{key}",
            target,
            f": {error}. Name a class in a package by its full name: my_package.module.{file.name}.",
        ) from None
    except (AttributeError, ValueError):
        module, _, name = target.rpartition(":" if file else ".")
        meant = nearest(name, (part for part in dir(sys.modules.get(module)) if not part.startswith("_")))
        raise ConfigurationError.at(
            f"{group}.{key}", target, f": {module or 'it'} has no {name}.{meant} Check the name."
        ) from None


def _modules_like(name: str) -> str:
    """Suggests modules with a name similar to a missing one's, in its package or in the user's folders."""
    package, dot, last = name.rpartition(".")
    folders = getattr(sys.modules.get(package), "__path__", []) if package else own_folders()
    return suggest(
        [f"{package}{dot}{match}" for match in similar(last, (inner.name for inner in iter_modules(folders)))]
    )


def call(group: str, target: str, kind: Any, /, *arguments: Any, **options: Any) -> Any:
    """Call ``kind``. Raises ConfigurationError if its arguments don't fit."""
    refuse_unfit(group, target, kind, *arguments, **options)
    return kind(*arguments, **options)


def combined(group: str, options: Section, given: Section) -> dict[str, Any]:
    """The keys of a section with what the run itself passes. Raises ConfigurationError for a key that is both."""
    for key in options.keys() & given.keys():
        raise ConfigurationError.at(f"{group}.{key}", options[key], f": the run itself passes {key}. Remove the key.")
    return {**options, **given}


def refuse_unfit(group: str, target: str, kind: Any, /, *arguments: Any, **options: Any) -> None:
    """Raises ConfigurationError for arguments that ``kind`` does not accept, without calling it."""
    try:
        signature(kind).bind(*arguments, **options)
    except TypeError as error:
        unknown = re.search(r"unexpected keyword argument '(\w+)'", str(error))
        parameters = signature(kind).parameters
        meant = _meant(unknown[1], parameters, options) if unknown else ""
        how = (
            f" It takes {', '.join(parameters) or 'none'}."
            if unknown and not meant
            else f"{meant} Set them under {group}."
        )
        raise ConfigurationError.at(f"{group}._target_", target, f" rejects its arguments: {error}.{how}") from None


def _meant(name: str, parameters: Collection[str], given: Collection[str]) -> str:
    """Suggests arguments similar to a mistyped one; if there are none, one that is set already."""
    alike = similar(name, (word for word in parameters if word not in given))
    taken = similar(name, (word for word in parameters if word in given))
    return suggest(alike) or suggest([f"{word}, which is set already," for word in taken[:1]]).replace(",?", "?")


def signature(kind: Any) -> inspect.Signature:
    """The signature of ``kind``; for a class in C without one, a signature that accepts anything."""
    try:
        return inspect.signature(kind)
    except ValueError:
        return inspect.signature(lambda *_, **__: None)


def instantiate_named(group: str, section: Mapping[str, Section], kind: type) -> dict[str, Any]:
    """The objects that a section's entries describe, by name. Raises ConfigurationError unless all are a ``kind``."""
    objects = {name: _made(f"{group}.{name}", spec) for name, spec in section.items()}
    for name, instance in objects.items():
        if not isinstance(instance, kind):
            raise ConfigurationError.at(
                f"{group}.{name}._target_",
                section[name]["_target_"],
                f" is not a {kind.__name__}. Derive the class from {kind.__module__}.{kind.__name__}.",
            )
    return objects


def arguments_of(group: str, section: Section, *, without: Collection[str] = ("name",)) -> dict[str, Any]:
    """A section's keys as arguments of its class, except ``without``; values with a ``_target_`` are instantiated."""
    options = {key: value for key, value in section.items() if key not in (TARGET, OPTION, *without)}
    return {key: _made(f"{group}.{key}", value) for key, value in options.items()}


def _made(key: str, value: Any) -> Any:
    """A key's value, in which each mapping with a ``_target_`` is replaced by the object that it describes."""
    if isinstance(value, list):
        return [_made(f"{key}.{index}", item) for index, item in enumerate(value)]
    if not isinstance(value, Mapping):
        return value
    if isinstance(target := value.get(TARGET), str):
        return call(key, target, locate(key, target), **arguments_of(key, value, without=()))
    return {name: _made(f"{key}.{name}", item) for name, item in value.items()}


def missing(package: str, *, extra: str) -> str | None:
    """That a package which an option needs is not installed, and how to get it; None if it is."""
    return None if find_spec(package) else f"the package {package} is not installed: pip install 'manyheads[{extra}]'"
