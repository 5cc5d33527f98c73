"""A config with one dotted key for each value."""

from collections.abc import Mapping
from typing import Any


def flatten(section: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """The config with one dotted key for each value; lists are values."""
    flat: dict[str, Any] = {}
    for name, value in section.items():
        if isinstance(value, dict) and value:
            flat.update(flatten(value, f"{prefix}{name}."))
        else:
            flat[f"{prefix}{name}"] = value
    return flat
