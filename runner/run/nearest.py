"""Names that a mistyped one may have meant."""

import difflib
from collections.abc import Iterable


def nearest(name: str, names: Iterable[str]) -> str:
    """A question with the names that are like a mistyped one, or nothing."""
    return suggest(similar(name, names))


def similar(name: str, names: Iterable[str]) -> list[str]:
    """Up to three of the names, the nearest first."""
    return difflib.get_close_matches(name, list(names), n=3, cutoff=0.55)


def suggest(names: list[str]) -> str:
    """The question about these names."""
    return f" Did you mean {' or '.join(names)}?" if names else ""
