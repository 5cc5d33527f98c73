"""Checks a section of a run config by the option that it is of: keys, values, and the class that it names."""

import re
from collections.abc import Iterable, Mapping
from typing import Any

from manyheads.runner.config.code_files import KIND
from manyheads.runner.config.lookup import (
    OWN,
    Folders,
    entry_option,
    option_of,
    options,
    owners,
    read_option,
    refuse_hidden,
    shown,
    unknown_key,
)
from manyheads.runner.errors import ConfigurationError, UnknownName, not_allowed
from manyheads.runner.option.declared import GROUPS, declared_class
from manyheads.runner.option.rules import Rule, rule_for
from manyheads.runner.option.source_file import source_file
from manyheads.runner.option.tree import OPTION, Section
from manyheads.runner.run import yaml_text
from manyheads.runner.wording import nearest


def _without_class(option: Section) -> dict[str, Any]:
    """An option's content without the class that declares it, which would be imported from any folder."""
    return {key: value for key, value in option.items() if key != OPTION}


def _own_class(group: str, section: Section) -> dict[str, Any]:
    """The declaration of the project's own option of that class, for configs that predate the key."""
    option = option_of(group, section) or {}
    return {OPTION: option[OPTION]} if OPTION in option else {}


def completed(name: str, section: Any, default: Section) -> Section:
    """The section completed with the defaults of missing keys."""
    if not isinstance(section, dict):
        raise ConfigurationError(
            f"{name}={shown(section)}: allowed are keys below {name}: {', '.join(default)}.",
            key=name,
            value=shown(section),
        )
    for key, value in default.items():
        if key not in section and value == "???":
            message = f"{name}.{key} is not set, and has no default. Set it: {name}.{key}=<value>."
            raise ConfigurationError(message, key=f"{name}.{key}")
    return {**section, **{key: value for key, value in default.items() if key not in section}}


def checked_option(group: str, section: Any, folders: Folders) -> Section:
    """A group's section, checked by its option and completed with that one's defaults. Raises ConfigurationError."""
    option = option_of(group, section, folders)
    if option is not None:
        refuse_hidden(group, section, folders)
    section = completed(group, section, _without_class(option or {}) | _own_class(group, section))
    check_values(group, {key: section[key] for key in ("_target_", OPTION) if key in section}, {}, {})
    declares = declared_class(group, section)
    if declares.has_own_class:
        _check_own_name(group, section, option, folders)
    if option is None:
        _refuse_keys_of_another(group, section, folders)
    check_section(group, section, option or {}, declares.all_rules(), folders, open_keys=option is None)
    return section


def check_section(
    name: str, section: Section, default: Section, rules: Mapping[str, Rule], folders: Folders = OWN, *, open_keys: bool
) -> None:
    """Raises ConfigurationError for unknown keys, unless there may be any (``open_keys``), and for wrong values."""
    if not open_keys and default.get("_target_") != "???":
        check_names(name, section.items(), list(default), folders)
    check_values(name, section, default, rules)


def check_named(section: str, entries: Any) -> None:
    """Raises ConfigurationError unless each entry has a class, and a name that can be a column or a key."""
    if not isinstance(entries, dict):
        raise ConfigurationError(
            f"{section}={shown(entries)}: allowed are names below {section}, each a mapping.",
            key=section,
            value=shown(entries),
        )
    for name, entry in entries.items():
        key = f"{section}.{name}"
        if not isinstance(name, str) or not name.isidentifier():
            raise ConfigurationError(
                f"{key}: {name} is not a valid name. Allowed: letters, digits and underscores.", key=key
            )
        if not isinstance(entry, dict) or entry.get("_target_") is None:
            raise ConfigurationError(
                f"{key}={shown(entry)} names no class. Set +{key}._target_=<class>, or leave it out with ~{key}.",
                key=key,
                value=shown(entry),
            )
        check_values(key, entry, {}, {})


def check_entry(group: str, name: str, entry: dict[str, Any], folders: Folders = OWN) -> None:
    """Check an entry and complete it with defaults. Raises ConfigurationError.

    If an option has an entry of the same class, the entry may have that option's keys; otherwise any keys.
    """
    option = entry_option(group, entry, folders) or {}
    base = entry_option(group, entry) or {}
    entry |= completed(name, entry, _without_class(option) | {k: base[k] for k in (OPTION,) if k in base})
    declares = declared_class(group, entry)
    check_section(f"{group}.{name}", entry, option, declares.all_rules(), folders, open_keys=not option)


def _check_own_name(group: str, section: Section, option: Section | None, folders: Folders) -> None:
    """Raises ConfigurationError if a section's name does not match its class, since reports use the name."""
    if option and section["name"] != option["name"]:
        raise ConfigurationError.at(
            f"{group}.name",
            str(section["name"]),
            f" does not match {group}._target_={section['_target_']}. Choose "
            f"{group}=<{'|'.join(options(group, folders))}> as a whole.",
        )


def _refuse_keys_of_another(group: str, section: Mapping[str, Any], folders: Folders) -> None:
    """Raises ConfigurationError if a file's class is set over an option, whose keys the class would get too."""
    names, name = options(group, folders), section["name"]
    if KIND not in names or name not in names or source_file(section["_target_"]) is None:
        return
    custom, taken = read_option(group, KIND, folders), read_option(group, name, folders)
    if rest := [key for key in taken if key in section and key not in (OPTION, *custom)]:
        raise ConfigurationError.at(
            f"{group}._target_",
            str(section["_target_"]),
            f" is set over {group}={name}, whose keys it would be given too: "
            f"{', '.join(rest)}. Set {group}={KIND} as well; in an experiment, defaults: [override /{group}: {KIND}].",
        )


def check_names(prefix: str, entries: Iterable[tuple[str, Any]], allowed: list[str], folders: Folders = OWN) -> None:
    """Raises ConfigurationError for a key that is not allowed, and suggests similar ones."""
    dot = f"{prefix}." if prefix else ""
    for key, value in entries:
        if key not in allowed and not (prefix in GROUPS and key == OPTION):
            listed = [dot + name for name in allowed]
            hint = f" Leave it out, or remove it: ~{dot}{key}." if owners(dot + key, folders) else ""
            message = f"{unknown_key(dot + key, folders, allowed)} Allowed: {', '.join(listed)}.{hint}"
            raise UnknownName(message, key=dot + key, value=value, allowed=listed)


def check_values(prefix: str, section: Section, default: Section, rules: Mapping[str, Rule]) -> None:
    """Raises ConfigurationError for a value that its rule, or the type of its default, does not accept."""
    dot = f"{prefix}." if prefix else ""
    for key, value in section.items():
        rule = rule_for(rules, key, default.get(key))
        if rule is not None and not rule.accepts(value):
            hint = _hint(value, rule) if isinstance(value, str) else ""
            raise not_allowed(dot + key, value, rule.allowed, values=rule.values, shown=shown(value), hint=hint)


def _hint(value: str, rule: Rule) -> str:
    """A remedy for a text that its key does not accept; empty if none is known."""
    if re.fullmatch(r"[\w.+-]+", value) and rule.accepts(yaml_text.parse(value)):
        return f" {value} is a text here: leave out the quotes, or read variables as ${{oc.decode:${{oc.env:NAME}}}}."
    return nearest(value, filter(rule.accepts, rule.allowed.split(", ")))


_KEY = re.compile(
    r"(.*_)?(passw(or)?d|passphrase|pwd|secret|credentials?|jwt)|(.*_)?(api|access|secret|private|auth)_?(key|token)|token",
    re.IGNORECASE,
)
_IN_URL = re.compile(r"\w+://[^/@\s:]*:[^/@\s]+@")  # user and password


def refuse_secrets(values: Iterable[tuple[str, Any]]) -> None:
    """Raises ConfigurationError for a value that looks like a key or a password. values: dotted keys with values."""
    for key, value in values:
        name = key.rpartition(".")[2]
        if isinstance(value, str) and value and "${" not in value and (_KEY.fullmatch(name) or _IN_URL.search(value)):
            variable = name.upper() if _KEY.fullmatch(name) else "MY_PASSWORD"
            raise ConfigurationError(
                f"{key}=*** looks like a key or a password, and would be recorded in the run's folder, pages and "
                f"trackers. Nothing was started. Keep it in the environment: remove {key}, export {variable}=..., and "
                f'read os.environ["{variable}"] in the class that needs it.',
                key=key,
            )
