"""Claims about runs, such as those of a record or a judgement, compared with the runs' rows."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from manyheads.runner.errors import ConfigurationError
from manyheads.runner.run.seal import digest_of

CLOSE = 1e-9  # relative; numbers that were computed in another order
MACHINE = ("commit", "clean", "versions", "devices", "host")  # of provenance.json


def differences_of(expected: Any, claimed: Any, where: str = "") -> list[str]:
    """Sentences on claims that are not what is expected, key by key. ``where``: the key of both."""
    differences: list[str] = []
    if isinstance(expected, dict) and isinstance(claimed, dict):
        for key in [*expected, *(key for key in claimed if key not in expected)]:
            differences += differences_of(expected.get(key), claimed.get(key), f"{where}.{key}".lstrip("."))
    elif isinstance(expected, (list, tuple)) and isinstance(claimed, list) and len(expected) == len(claimed):
        for number, (one, other) in enumerate(zip(expected, claimed, strict=True)):
            differences += differences_of(one, other, f"{where}.{number}")
    elif not _are_same(expected, claimed):
        differences.append(f"{where}: the file claims {claimed!r}, correct is {expected!r}")
    return differences


def _are_same(one: Any, other: Any) -> bool:
    try:
        return math.isclose(one, other, rel_tol=CLOSE)
    except (TypeError, OverflowError):  # not numbers, or an integer beyond all floats
        return bool(one == other)


def repeated_seeds(seeds: Sequence[int], *, where: str) -> list[str]:
    """A sentence if runs that are to be independent share a seed. ``where``: among which runs."""
    twice = sorted(seed for seed, count in Counter(seeds).items() if count > 1)
    return [f"{where}: seed {twice[0]} is repeated, so these runs are not independent"] if twice else []


def machine_of(provenance: Mapping[str, Any]) -> str:
    """A digest of what runs that are compared have in common: versions, devices and this project's code."""
    return digest_of({key: provenance.get(key) for key in MACHINE})


def direction(result: Mapping[str, Any], metric: str) -> str:
    """Whether a metric is better at its "max" or "min", by a run's result.json. Raises ConfigurationError."""
    if metric not in result.get("metrics", {}):
        measured = [name for name in result.get("metrics", {}) if not name.endswith("samples")]
        raise ConfigurationError(
            f"{metric}: the runs did not measure that. Allowed: {', '.join(measured) or 'nothing'}.",
            key=metric,
            allowed=measured,
        )
    if (name := metric.partition("_")[2]) == "loss":
        return "min"
    return str(result.get("scores", {}).get("metrics", {}).get(name, {}).get("direction", "max"))
