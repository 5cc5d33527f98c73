"""A run config as a tree of plain values: its leaves, and the classes that it names."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from manyheads.runner.option.source_file import SourceFile, source_file

TARGET = "_target_"  # the key that names a class
OPTION = "_option_"  # the key that names the class of an option's declarations
Section = Mapping[str, Any]  # of a run config: mostly a class, by its ``_target_``, and the arguments for it


def targets(value: Any, key: str = "") -> Iterator[tuple[str, Any]]:
    """Every ``_target_`` and ``_option_`` that is set in a config, with its dotted key, wherever it is."""
    items = value.items() if isinstance(value, Mapping) else enumerate(value) if isinstance(value, list) else ()
    for name, item in items:
        inner = f"{key}.{name}".lstrip(".")
        if name in (TARGET, OPTION) and item is not None and item != "???":
            yield inner, item
        yield from targets(item, inner)


def leaves(value: Any, key: str = "") -> Iterator[tuple[str, Any]]:
    """The values in a config that are not mappings or lists, with their dotted keys."""
    if isinstance(value, (dict, list)):
        for name, item in value.items() if isinstance(value, dict) else enumerate(value):
            yield from leaves(item, f"{key}.{name}".lstrip("."))
    else:
        yield key, value


def with_targets(value: Any, changed: Callable[[str, Any], Any], key: str = "") -> Any:
    """A config's value with ``changed(key, target)`` in place of each ``_target_`` and ``_option_``, wherever it is."""
    if isinstance(value, list):
        return [with_targets(item, changed, f"{key}.{index}") for index, item in enumerate(value)]
    if isinstance(value, dict):
        return {name: with_targets(item, changed, f"{key}.{name}".lstrip(".")) for name, item in value.items()}
    return changed(key, value) if key.rpartition(".")[2] in (TARGET, OPTION) else value


def packages_named(config: Section) -> set[str]:
    """The top-level packages of all classes that a config names, except those in files."""
    return {name.partition(".")[0] for _, name in targets(config) if isinstance(name, str) and not source_file(name)}


def files_named(config: Section) -> dict[str, SourceFile]:
    """The user's own files that a config names, by key."""
    return {key: file for key, name in targets(config) if (file := source_file(name)) is not None}
