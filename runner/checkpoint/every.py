"""How often something is done: a number of updates, or of epochs as text, and the other way round."""

import re
from typing import Any

EVERY = re.compile(r"(\d+)epochs?")
STEPS = re.compile(r"(\d+)steps?")


def steps_of(value: Any) -> int | None:
    """Updates in "500steps"; None for what is no such text."""
    found = STEPS.fullmatch(value) if isinstance(value, str) else None
    return int(found[1]) or None if found else None
