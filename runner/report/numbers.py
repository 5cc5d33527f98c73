"""Parses typed values as numbers, and chooses the scale on which they are drawn."""

import math
from collections.abc import Iterable, Sequence
from contextlib import suppress

WIDE = 8  # ratio of the largest to the smallest value from which a scale is logarithmic


def as_numbers(texts: Sequence[str]) -> list[float] | None:
    """The texts as numbers; None if one of them is not a number."""
    with suppress(ValueError):
        found = [float(text) for text in texts]
        return found if all(map(math.isfinite, found)) else None
    return None


def is_wide(values: Iterable[float]) -> bool:
    """Whether positive values are so far apart that the small ones would overlap on a linear scale."""
    known = [value for value in values if math.isfinite(value)]
    return bool(known) and min(known) > 0 and max(known) / min(known) >= WIDE
