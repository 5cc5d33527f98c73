"""Parameters by patterns of their names."""

import fnmatch
from collections.abc import Iterable

from manyheads.runner.run.errors import ConfigurationError
from manyheads.runner.run.nearest import nearest

SHOWN = 6


def matching(pattern: str, names: Iterable[str], *, key: str) -> list[str]:
    """Those of the names that the pattern means: a parameter, or all below a module; "*" stands for anything.

    key: of the run config, for the error. Raises ConfigurationError where it means none.
    """
    known = list(names)
    found = [name for name in known if _means(pattern, name)]
    if not found:
        modules = {prefix for name in known for prefix in _prefixes(name)}
        tops = list(dict.fromkeys(name.partition(".")[0] for name in known))
        raise ConfigurationError(
            f"{key}: no parameter of the model is named {pattern}.{nearest(pattern, [*modules, *known])} "
            f"It begins with {', '.join(tops[:SHOWN])}{', ...' * (len(tops) > SHOWN)}."
        )
    return found


def _means(pattern: str, name: str) -> bool:
    return fnmatch.fnmatchcase(name, pattern) or fnmatch.fnmatchcase(name, f"{pattern}.*")


def _prefixes(name: str) -> list[str]:
    parts = name.split(".")
    return [".".join(parts[:count]) for count in range(1, len(parts))]
