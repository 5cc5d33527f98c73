"""Finds parameters by patterns of their names."""

import fnmatch
from collections.abc import Iterable

from manyheads.runner.errors import ConfigurationError
from manyheads.runner.wording import nearest

SHOWN = 6


def matching(pattern: str, names: Iterable[str], *, key: str) -> list[str]:
    """The names that match the pattern: a parameter, or all parameters in a module; "*" matches anything.

    key: of the run config, for the error. Raises ConfigurationError if no name matches.
    """
    known = list(names)
    found = [name for name in known if _means(pattern, name)]
    if not found:
        modules = {prefix for name in known for prefix in _prefixes(name)}
        tops = list(dict.fromkeys(name.partition(".")[0] for name in known))
        raise ConfigurationError(
            f"{key}: no parameter of the model is named {pattern}.{nearest(pattern, [*modules, *known])} "
            f"It begins with {', '.join(tops[:SHOWN])}{', ...' * (len(tops) > SHOWN)}.",
            key=key,
        )
    return found


def _means(pattern: str, name: str) -> bool:
    return fnmatch.fnmatchcase(name, pattern) or fnmatch.fnmatchcase(name, f"{pattern}.*")


def _prefixes(name: str) -> list[str]:
    parts = name.split(".")
    return [".".join(parts[:count]) for count in range(1, len(parts))]
