"""What a search has found."""

from collections.abc import Mapping
from dataclasses import dataclass

from manyheads.runner.commands.tune.race import Variant


@dataclass(frozen=True)
class Choice:
    """The fastest configuration of a class of numerics; the user's own if no other one is likely to be faster.

    ``gain``: of the logarithm of seconds over the user's own configuration, in ``rounds`` after it was chosen; as
    expected, if there are none; ``low``, ``high``: its interval over all rounds since it was screened; ``regret``: the
    fraction of its seconds by which the fastest of ``decided`` configurations may be faster; ``unproven``: what is
    expected to be faster, but may not be.
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
class Outcome:
    """``choices``: by class, the user's own class first.

    ``screened``, ``precisions``: gains over the user's own configuration in a single round, of all that were measured,
    and of the fastest in other precisions.
    """

    choices: tuple[Choice, ...]
    screened: Mapping[Variant, float]
    precisions: Mapping[Variant, float]
