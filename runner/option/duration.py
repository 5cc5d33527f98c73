"""Durations: seconds, or a number with a unit."""

import re
from typing import Any

from manyheads.runner.option.rules import Rule, number

UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}
_TEXT = re.compile(rf"(\d+(?:\.\d+)?)([{''.join(UNITS)}])")


def seconds(value: Any) -> float | None:
    """The seconds of a duration such as 90, "90s", "1.5h" or "2d"; None for anything else."""
    if number(above=0).accepts(value):
        return float(value)
    found = _TEXT.fullmatch(value) if isinstance(value, str) else None
    return (float(found[1]) * UNITS[found[2]] or None) if found else None


DURATION = Rule("seconds, or 90s, 30m, 8h, 2d", lambda value: seconds(value) is not None)
