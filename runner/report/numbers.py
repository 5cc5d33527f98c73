"""Numbers among what was typed, and the scale on which they are drawn."""

import math
from collections.abc import Iterable, Sequence
from contextlib import suppress

WIDE = 8  # the ratio of a largest to a smallest value from which on a scale is logarithmic


def as_numbers(texts: Sequence[str]) -> list[float] | None:
    """The texts as numbers, or None where one of them is none."""
    with suppress(ValueError):
        found = [float(text) for text in texts]
        return found if all(map(math.isfinite, found)) else None
    return None


def is_wide(values: Iterable[float]) -> bool:
    """Whether values above zero are so far apart that those of one end would lie on top of one another."""
    known = [value for value in values if math.isfinite(value)]
    return bool(known) and min(known) > 0 and max(known) / min(known) >= WIDE
