"""The outcome of a search: its choices."""

from collections.abc import Mapping
from dataclasses import dataclass

from manyheads.runner.answers.tune.race import Variant


@dataclass(frozen=True)
class Choice:
    """The fastest configuration in a class of numerics; the user's own if no other one is likely to be faster.

    ``gain``: over the user's own configuration, as a difference of logarithms of seconds, measured in ``rounds`` after
    it was chosen; if there are none, the expected gain.
    ``low``, ``high``: the interval of the gain over all rounds after screening.
    ``regret``: by which fraction of its seconds the fastest of the ``decided`` configurations may be faster.
    ``decided``: the configurations that were measured until the choice was known to be at most that much slower.
    ``unproven``: a configuration that is expected to be faster, but may not be.
    """

    numerics: str
    candidate: Variant
    gain: float
    rounds: int
    low: float
    high: float
    regret: float
    decided: frozenset[Variant]
    unproven: Variant | None = None


@dataclass(frozen=True)
class SearchOutcome:
    """The result of a search.

    ``choices``: one for each class of numerics, the user's own class first.
    ``screened``: the gain over the user's own configuration in a single round, of everything that was measured.
    ``precisions``: the same of the fastest configuration in other precisions.
    """

    choices: tuple[Choice, ...]
    screened: Mapping[Variant, float]
    precisions: Mapping[Variant, float]
