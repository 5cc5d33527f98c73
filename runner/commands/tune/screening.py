"""The first part of a search: rounds of whatever may be fastest, as far as is known from those before."""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from math import sqrt
from typing import Protocol

from manyheads.runner.commands.tune.effects import Gain, gains, noise_of, worth
from manyheads.runner.commands.tune.race import BASE, Times, Variant

SCREEN = "screen"  # what a round is for
COMPARING = 8  # runs kept for comparing the updates of a candidate with those of the user's own, and proving it: 6 of
# them, if they take as long as expected
SCREENED = 0.35  # part of the budget that is left when screening ends, if that can bring a decision
AT_ONCE = 3  # candidates of a round, beside the user's own configuration
SURE, CLOSE = 2.0, 0.03  # nothing else may be so much faster, and so many deviations, for screening to end early
COSTLY = 0.1  # part of the budget above which a run is too long to be tried


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

    def share(self, candidates: Sequence[Variant]) -> float:
        """The part of the budget that a run of each of these candidates takes."""
        ...

    def is_costly(self, candidate: Variant) -> bool:
        """Whether a run of it is expected to take more than COSTLY of the budget, which is then recorded."""
        ...

    def round(self, purpose: str, candidates: Sequence[Variant]) -> Times:
        """Each candidate once, in a drawn order; without those that failed. Raises BudgetSpent."""
        ...

    def expected(self, candidate: Variant) -> str | None:
        """The class of what the candidate computes, as its options declare it; None if it may not be chosen."""
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
        """The candidates that differ from this one in the setting ``step`` only, possible or not."""
        ...

    def is_possible(self, candidate: Variant) -> bool:
        """Whether it can run as far as one can tell before it does, and is no other one's in different words."""
        ...

    def saves_memory(self, candidate: Variant) -> bool:
        """Whether its strategy is there to save memory rather than time."""
        ...

    def in_other_precisions(self, candidate: Variant) -> Sequence[Variant]:
        """The same candidate in other precisions, which are measured once."""
        ...


@dataclass
class Screening:
    """``own``: the class of what computes the same as the user's configuration.

    ``deciding``: how many rounds of two candidates can bring a decision between them.

    First each single change of the user's own configuration has its turn, in the order of the space, except strategies
    that save memory. Then each round has what may be the fastest, if one is as optimistic about each as is little known
    of it, among all single changes and what differs in one setting from any that is expected to be faster.
    """

    bench: Bench
    space: Space
    own: str
    deciding: int
    rounds: list[Times] = field(default_factory=list)
    failed: set[Variant] = field(default_factory=set)
    _pool: dict[Variant, None] = field(default_factory=dict)  # what may be measured next
    _around: set[Variant] = field(default_factory=set)  # those whose neighbours are in the pool

    def run(self) -> None:
        with suppress(BudgetSpent):
            self._add_around(BASE)
            while (picked := self._picked()) and self._leaves_enough(picked):
                self._measure(picked)
                for faster in self.fastest(len(self.once)).values():
                    self._add_around(*faster)

    @property
    def noise(self) -> float:
        """The deviation of a run within its round."""
        return noise_of(self.rounds, floor=self.bench.scale / sqrt(2))

    def gains(self, among: Iterable[Variant], *, later: Sequence[Times] = ()) -> Mapping[Variant, Gain]:
        """What is expected after all rounds, and ``later`` ones."""
        return gains([*self.rounds, *later], [*among], noise=self.noise)

    @property
    def once(self) -> dict[Variant, float]:
        """Of each candidate the gain in the first round in which it ran."""
        found = {BASE: 0.0}
        for times in self.rounds:
            for each, seconds in times.items():
                found.setdefault(each, times.get(BASE, seconds) - seconds)
        return found

    def fastest(self, count: int) -> dict[str, list[Variant]]:
        """By class as it is expected, at most ``count`` of what was measured and is expected to be faster."""
        measured = self.gains(each for each in self.once if each not in {BASE, *self.failed})
        found: dict[str, list[Variant]] = {self.own: []}
        for each in sorted(measured, key=lambda each: -worth(each, measured[each])):
            name = self.bench.expected(each) if measured[each].mean > 0 else None
            if name is not None and len(found.setdefault(name, [])) < count:
                found[name].append(each)
        return found

    def _leaves_enough(self, picked: Sequence[Variant]) -> bool:
        """Whether there is time for a decision after a round of these, or at least, in small budgets, for comparing."""
        leader = next(iter(self.fastest(1)[self.own]), BASE)
        comparing = [leader] * COMPARING
        can_decide = self.bench.share(comparing + [BASE, leader] * self.deciding) <= SCREENED
        left = self.bench.left - self.bench.share([BASE, *picked])
        return left > (SCREENED if can_decide else self.bench.share(comparing))

    def _picked(self) -> list[Variant]:
        """What is measured next; of other classes at most one, if it may be faster than all of the own class."""
        known = self.gains(self._pool)
        # Single changes come first, since a setting may gain only on its own.
        single = {each for each in self._differing_from(BASE) if not self.space.saves_memory(each)} - self.once.keys()
        order = sorted(self._pool, key=lambda each: (each not in single, -known[each].optimistic))
        picked, of_others = list[Variant](), list[Variant]()
        for each in order:
            name = self.bench.expected(each) if self.space.is_possible(each) else None
            if name is None or self.bench.is_costly(each):
                del self._pool[each]
            elif name == self.own:
                picked.append(each)
            elif not picked and not of_others:
                of_others.append(each)
            if len(picked) == AT_ONCE:
                break
        picked = [*of_others, *picked][:AT_ONCE]
        measured = [each for each in picked if each in self.once]
        best = max(measured, key=lambda each: known[each].mean, default=BASE)
        level = max(0.0, known[best].mean) if best in known else 0.0
        most = (known[each].mean + SURE * known[each].deviation for each in self._pool if each != best)
        is_open = any(each > level + CLOSE for each in most)
        return picked if is_open else []

    def _measure(self, candidates: Sequence[Variant]) -> None:
        times = self.bench.round(SCREEN, [BASE, *candidates])
        self.rounds.append(times)
        for each in candidates:
            if each not in times:
                self.reject(each)

    def reject(self, candidate: Variant) -> None:
        """What failed, or computes something else, is neither measured again nor chosen."""
        self.failed.add(candidate)
        self._pool.pop(candidate, None)

    def _add_around(self, *variants: Variant) -> None:
        for variant in variants:
            if variant not in self._around:
                self._around.add(variant)
                found = self._differing_from(variant)
                self._pool |= dict.fromkeys(each for each in found if each not in {BASE, *self.failed, *self._pool})

    def _differing_from(self, variant: Variant) -> dict[Variant, None]:
        """What differs from it in one setting, in the order of the space."""
        space = self.space
        return dict.fromkeys(each for step in space.steps(variant) for each in space.alternatives(variant, step))
