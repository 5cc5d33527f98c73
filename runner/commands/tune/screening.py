"""The first part of a search: one round for each alternative, setting by setting, from the fastest found so far."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Protocol

from manyheads.runner.commands.tune.race import BASE, Times, Variant

SCREEN, HALVE = "screen", "halve"  # what a round is for
MARGIN = 0.02  # of the logarithm of seconds, by which a configuration has to be ahead to be built upon
SCREENED = 0.45  # part of the budget that is left when screening ends


class BudgetSpent(Exception):
    """The next round does not fit into the budget."""


class Bench(Protocol):
    """Where configurations are measured."""

    @property
    def left(self) -> float:
        """The part of the budget that is left."""
        ...

    @property
    def scale(self) -> float:
        """The spread of the user's own configuration against itself."""
        ...

    def fits(self, candidates: Sequence[Variant]) -> int:
        """How many rounds of these candidates the rest of the budget allows."""
        ...

    def round(self, purpose: str, candidates: Sequence[Variant]) -> Times:
        """Each candidate once, in a drawn order; without those that failed. Raises BudgetSpent."""
        ...

    def expected(self, candidate: Variant) -> str | None:
        """The class of what the candidate computes, as its options declare it; None if it may not be chosen."""
        ...

    def is_fair(self, candidate: Variant) -> bool:
        """Whether the candidate computes on what the user's own configuration does. Raises BudgetSpent."""
        ...

    def numerics(self, candidate: Variant) -> str | None:
        """The class of what the candidate computes, compared with the user's own; None if it may not be chosen."""
        ...

    def is_proved(self, candidate: Variant) -> bool:
        """Whether the candidate also evaluates and writes a checkpoint."""
        ...


class Space(Protocol):
    """What can be tried."""

    def steps(self, candidate: Variant) -> Sequence[str]:
        """The settings for which this candidate has alternatives, in the order in which they are tried."""
        ...

    def alternatives(self, candidate: Variant, step: str) -> Sequence[Variant]:
        """The candidates that differ from this one in the setting ``step`` only."""
        ...

    def in_other_precisions(self, candidate: Variant) -> Sequence[Variant]:
        """The same candidate in other precisions, which are measured once."""
        ...


@dataclass
class Screening:
    """``own``: the class of what computes the same as the user's configuration.

    ``gains``: of each candidate over the user's own configuration in its round, as logarithms; ``unfair``: those that
    are faster because they compute on something else.
    """

    bench: Bench
    space: Space
    own: str
    gains: dict[Variant, float] = field(default_factory=lambda: {BASE: 0.0})
    unfair: set[Variant] = field(default_factory=set)

    def run(self) -> None:
        """Climb from the user's configuration, then from the first faster one of each other class."""
        started: dict[str, Variant] = {self.own: BASE}
        done: set[str] = set()
        with suppress(BudgetSpent):
            while pending := [name for name in started if name not in done]:
                done.add(pending[0])
                self._climb(pending[0], started)

    def fastest(self, count: int) -> Mapping[str, list[Variant]]:
        """By class as it is expected, at most ``count`` candidates of each that may be the fastest."""
        found: dict[str, list[Variant]] = {self.own: []}
        for each in sorted(self.gains, key=lambda each: -self.gains[each]):
            name = None if each == BASE or each in self.unfair else self.bench.expected(each)
            if name is not None and self.gains[each] > -MARGIN:
                found.setdefault(name, []).append(each)
        return {name: candidates[:count] for name, candidates in found.items()}

    def _climb(self, name: str, started: dict[str, Variant]) -> None:
        best, tried = started[name], set[str]()
        while step := next((each for each in self.space.steps(best) if each not in tried), None):
            tried.add(step)
            if self.bench.left < SCREENED:
                return
            others = [each for each in self.space.alternatives(best, step) if each not in self.gains]
            if others:
                self._measure([best, *others])
                best = self._ahead(best, others, name, started)

    def _ahead(self, best: Variant, others: Sequence[Variant], name: str, started: dict[str, Variant]) -> Variant:
        """The fastest of the same class; the first faster one of another class begins a climb of its own."""
        faster = [each for each in others if self.gains.get(each, -1.0) > self.gains[best] + MARGIN]
        for each in sorted(faster, key=lambda each: -self.gains[each]):
            if not (self.bench.is_fair(each) and self.bench.is_proved(each)):
                self.unfair.add(each)
            elif (found := self.bench.expected(each)) in (name, self.own):
                return each
            elif found is not None:
                started.setdefault(found, each)
        return best

    def _measure(self, candidates: Sequence[Variant]) -> None:
        times = self.bench.round(SCREEN, [*dict.fromkeys([BASE, *candidates])])
        if BASE in times:
            self.gains |= {each: times[BASE] - seconds for each, seconds in times.items() if each != BASE}
