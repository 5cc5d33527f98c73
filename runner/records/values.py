"""Values of run configs by dotted key, as they are typed on the command line."""

import os
from typing import Any

from manyheads.runner.option.tree import Section


def config_value(config: Section, key: str) -> Any:
    """A key's value; of a group, its option's name."""
    return config.get(key, config.get(f"{key}.name"))


def has_key(config: Section, key: str) -> bool:
    """Whether a config has a key, or the group of that name."""
    return key in config or f"{key}.name" in config


def text_of(value: Any) -> str:
    """A value as it is written on the command line."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list):
        return "[" + ",".join(text_of(part) for part in value) + "]"
    return str(value)


def fits(value: Any, wanted: str) -> bool:
    """Whether a value is what was typed: numbers are compared as numbers, a list fits if it contains the value."""
    if isinstance(value, list) and not wanted.startswith("["):
        return any(fits(element, wanted) for element in value)
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        try:
            return float(wanted) == value
        except ValueError:
            return False
    return text_of(value) == ("" if wanted in ("null", "None") else wanted.replace(", ", ","))


def class_in_file(wanted: str) -> str:
    """``model.py:Net`` as a config has it, with the file's absolute path; other texts unchanged."""
    path, colon, name = wanted.rpartition(":")
    return f"{os.path.abspath(path)}:{name}" if colon and path.endswith(".py") else wanted
