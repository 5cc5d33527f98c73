"""A search's input, configurations and where they are measured, and its outcome, the choices."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from manyheads.runner.answers.tune.race import Times, Variant


class TimeSpent(Exception):
    """The next round does not fit into the budget."""


class Measurements(Protocol):
    """What measures configurations for the search."""

    @property
    def left(self) -> float:
        """The fraction of the budget that is left."""

    @property
    def scale(self) -> float:
        """The spread of the user's own configuration against itself."""

    def share(self, candidates: Sequence[Variant]) -> float:
        """The fraction of the budget that a run of each of these candidates takes in total."""

    def is_costly(self, candidate: Variant) -> bool:
        """Whether a run of it is expected to take more than COSTLY of the budget, or more memory than there is.

        If so, it is recorded as refused.
        """

    def round(self, purpose: str, candidates: Sequence[Variant]) -> Times:
        """Run each candidate once, in a drawn order; return the times of those that succeed. Raises TimeSpent."""

    def expected(self, candidate: Variant) -> str | None:
        """The expected class of the candidate's numerics; None if one like it may not be chosen."""

    def numerics(self, candidate: Variant) -> str | None:
        """The class of the candidate's numerics, compared with the user's own; None if it may not be chosen."""

    def is_proved(self, candidate: Variant) -> bool:
        """Whether the candidate can also evaluate and write a checkpoint. Raises TimeSpent."""


class SearchSpace(Protocol):
    """The configurations that can be tried."""

    def steps(self, candidate: Variant) -> Sequence[str]:
        """The settings for which this candidate has alternatives, in the order in which they are tried."""

    def alternatives(self, candidate: Variant, step: str) -> Sequence[Variant]:
        """The candidates that differ from this one in the setting ``step`` only, possible or not."""

    def is_possible(self, candidate: Variant) -> bool:
        """Whether it can run, as far as its config tells, and does not equal another candidate."""

    def in_other_precisions(self, candidate: Variant) -> Sequence[Variant]:
        """The same configuration in each other precision."""


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
