"""Keys whose values somebody else's config may set, by what the rules declare of them; all others are refused."""

import os
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any

from manyheads.runner.config.lookup import NAMED, SECTIONS, entry_option, option_of, own_sections
from manyheads.runner.errors import ConfigurationError
from manyheads.runner.machine.ownership import is_mine
from manyheads.runner.option.declared import ENTRIES, GROUPS, declared_class
from manyheads.runner.option.rules import KeyKind, Rule
from manyheads.runner.option.tree import OPTION, TARGET, Section
from manyheads.runner.run.objects import is_address
from manyheads.runner.trust.allowed_classes import is_harmless, is_own_class, is_reviewed, own_declarations
from manyheads.runner.trust.trust_store import Trust


def refused_keys(config: Section, trust: Trust) -> Iterator[tuple[str, Any]]:
    """The keys that somebody else's config may not set, with their values, but for what the user typed or trusts.

    No class is imported but the project's own, and those that the user typed or trusts.
    """
    for key, group, section in _sections(config):
        if key in trust.replaced:
            continue
        kinds, default = _kinds(group, section, trust), _default(group, section)
        is_argument = is_reviewed(group, section.get(TARGET))
        for name, value in section.items():
            is_own = f"{key}.{name}" in trust.replaced or _is_typed(f"{key}.{name}", value, kinds.get(name), trust)
            if name in (TARGET, OPTION) or is_own:
                continue
            if not _is_allowed(value, kinds.get(name), default.get(name), trust, is_argument=is_argument):
                yield f"{key}.{name}", value


def _kinds(group: str, section: Section, trust: Trust) -> Mapping[str, KeyKind]:
    """What the keys of a section are.

    The project's own options declare it, whatever class the config names; of another class only what is dangerous,
    while the rest is up to that class, if the user trusts its declaration.
    """
    kind_of = own_kinds(group)
    if group not in (*GROUPS, *ENTRIES):
        return kind_of
    is_own = is_own_class(group, section.get(TARGET))
    kinds = {name: kind for name, kind in kind_of.items() if is_own or kind > KeyKind.OBJECT or name == "name"}
    is_declared = may_declare(group, section.get(OPTION), trust)
    _add(kinds, declared_class(group, section if is_declared else {}).all_rules())
    return kinds


@cache
def own_kinds(group: str) -> Mapping[str, KeyKind]:
    """What the keys of a group or section are, in the most dangerous of the project's own options that have the key.

    A key is missing if its rule does not say it.
    """
    from manyheads.runner.config.run_rules import rules_of  # printing a config does not need it

    kinds = {"name": KeyKind.TEXT}  # of an option, or one of a library's models
    _add(kinds, rules_of(group))
    for section in own_sections(group) if group in (*GROUPS, *ENTRIES) else ():
        _add(kinds, declared_class(group, section).all_rules())
    return MappingProxyType(kinds)


def may_declare(group: str, name: Any, trust: Trust | None) -> bool:
    """Whether a class may be imported for an option's declaration: it is the project's, the user's, or trusted."""
    if trust is None or name is None:
        return True
    is_trusted = isinstance(name, str) and (name in own_declarations(group) or trust.covers(name))
    return is_trusted or trust.is_own(f"{group}.{OPTION}", name)


def _add(kinds: dict[str, KeyKind], rules: Mapping[str, Rule]) -> None:
    for key, rule in rules.items():
        if rule.kind is not None:
            kinds[key] = max(kinds.get(key, KeyKind.NUMBER), rule.kind)


def _sections(config: Section) -> Iterator[tuple[str, str, Section]]:
    """Each section: its key, its group, and its content."""
    for group in (*GROUPS, *SECTIONS):
        if isinstance(section := config.get(group), dict):
            yield group, group, section
    for group in NAMED:
        entries = config.get(group)
        for name, entry in entries.items() if isinstance(entries, dict) else ():
            if isinstance(entry, dict):
                yield f"{group}.{name}", group, entry


def _default(group: str, section: Section) -> Section:
    """The keys of the project's own option with this class."""
    try:
        if group in NAMED:
            return (entry_option(group, section) if TARGET in section else None) or {}
        return (option_of(group, section) if group in GROUPS else None) or {}
    except ConfigurationError:
        return {}


def _is_typed(key: str, value: Any, kind: KeyKind | None, trust: Trust) -> bool:
    """Whether the user typed or trusts the value, or each part of a mapping."""
    if trust.is_own(key, value) or key in trust.packages:
        return True
    if kind is KeyKind.PATH and isinstance(value, str):  # paths are frozen as absolute ones
        return any(key == name and _absolute(typed) == value for name, typed in trust.typed if isinstance(typed, str))
    is_mapping = isinstance(value, Mapping) and bool(value)
    return is_mapping and all(_is_typed(f"{key}.{name}", item, None, trust) for name, item in value.items())


def _is_allowed(value: Any, kind: KeyKind | None, default: Any, trust: Trust, *, is_argument: bool) -> bool:
    if value is None or value is False or (value == default and value is not True):
        return True
    if kind is None or kind is KeyKind.OBJECT:
        return _names_nothing(value, is_argument=is_argument)
    return kind < KeyKind.OBJECT or (kind is KeyKind.PATH and _is_inside(value, trust.folder))


def _names_nothing(value: Any, *, is_argument: bool) -> bool:
    """Whether a value holds no text and no mapping but objects and arguments of reviewed classes."""
    if isinstance(value, list):
        return all(_names_nothing(item, is_argument=is_argument) for item in value)
    if isinstance(value, Mapping):
        target = value.get(TARGET)
        is_argument = is_argument if target is None else is_harmless(None, target)
        items = (item for key, item in value.items() if key != TARGET)
        return all(_names_nothing(item, is_argument=is_argument) for item in items)
    return is_argument or not isinstance(value, str)


def _is_inside(value: Any, root: Path | None) -> bool:
    """Whether a path leads into the received folder, where nobody else could put a link after this check.

    Not into one that holds the user's home.
    """
    if root is None or not isinstance(value, str) or is_address(value):
        return False
    folder = Path(os.path.realpath(root))
    path = Path(os.path.realpath(_absolute(value)))
    if Path.home().is_relative_to(folder) or not path.is_relative_to(folder):
        return False
    return is_mine(next(existing for existing in (path, *path.parents) if existing.exists()))


def _absolute(path: str) -> str:
    return os.path.abspath(os.path.expanduser(path))
