"""The first phase of a search: rounds of the configurations that may be the fastest, judging by earlier rounds."""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from math import sqrt

from manyheads.runner.answers.tune.effects import Gain, gains, noise_of, worth
from manyheads.runner.answers.tune.measurements import Measurements, SearchSpace, TimeSpent
from manyheads.runner.answers.tune.race import BASE, Times, Variant
from manyheads.runner.config.candidates import saves_memory

SCREEN = "screen"  # the purpose of a round
# Runs for which time is reserved to compare a candidate's updates with the user's own, and to prove it. It takes 6 runs
# if they are as long as expected.
COMPARING = 8
SCREENED = 0.25  # fraction of the budget that is left when screening ends, if that suffices for a decision
AT_ONCE = 3  # candidates in a round, beside the user's own configuration
SURE, CLOSE = 2.0, 0.03  # screening ends if no mean gain plus SURE deviations exceeds the best's by more than CLOSE
EARLY = 0.5  # fraction of the budget that is left when the leader is compared, if its gain is at least SURE deviations
COSTLY = 0.1  # fraction of the budget above which a run is too long to be tried


@dataclass
class Screening:
    """The rounds of screening.

    First, each single change of the user's own configuration is measured, in the order of the space, except strategies
    that save memory. Then each round takes the candidates with the highest optimistic gain (mean plus deviation) among
    all single changes and the neighbours, in one setting, of every candidate that is expected to be faster. Once half
    of the budget is spent, the leader is compared with the user's own configuration, so that there is something to
    choose even if a run stalls for the rest of it.

    ``usual``: the class of numerics of the user's configuration. ``deciding``: the number of rounds that can decide
    between two candidates.
    """

    bench: Measurements
    space: SearchSpace
    usual: str
    deciding: int
    rounds: list[Times] = field(default_factory=list)
    failed: set[Variant] = field(default_factory=set)
    _pool: dict[Variant, None] = field(default_factory=dict)  # candidates that may be measured next
    _around: set[Variant] = field(default_factory=set)  # candidates whose neighbours are in the pool
    _compared: dict[Variant, str | None] = field(default_factory=dict)

    def run(self) -> None:
        """Screen until nothing else may be faster, or the rest of the budget is needed for a decision."""
        with suppress(TimeSpent):
            self._add_around(BASE)
            while (picked := self._picked()) and self._leaves_enough(picked):
                self._measure(picked)
                for faster in self.fastest(len(self.once)).values():
                    self._add_around(*faster)
                if self.bench.left <= EARLY and not any(self._compared.values()):
                    self._compare_leader()

    @property
    def noise(self) -> float:
        """The standard deviation of a run within its round."""
        return noise_of(self.rounds, floor=self.bench.scale / sqrt(2))

    def gains(self, among: Iterable[Variant], *, later: Sequence[Times] = ()) -> Mapping[Variant, Gain]:
        """The expected gains after all rounds, and ``later`` ones."""
        return gains([*self.rounds, *later], [*among], noise=self.noise)

    @property
    def once(self) -> dict[Variant, float]:
        """The gain of each candidate in the first round in which it ran."""
        gains = {BASE: 0.0}
        for times in self.rounds:
            for variant, seconds in times.items():
                gains.setdefault(variant, times.get(BASE, seconds) - seconds)
        return gains

    def fastest(self, count: int) -> dict[str, list[Variant]]:
        """By expected class, the best measured candidates that are expected to be faster; at most ``count`` of each."""
        measured = self.gains(variant for variant in self.once if variant not in {BASE, *self.failed})
        by_class: dict[str, list[Variant]] = {self.usual: []}
        for variant in sorted(measured, key=lambda variant: -worth(variant, measured[variant])):
            name = self.bench.expected(variant) if measured[variant].mean > 0 else None
            if name is not None and len(by_class.setdefault(name, [])) < count:
                by_class[name].append(variant)
        return by_class

    def compared(self, candidate: Variant) -> str | None:
        """The class of the candidate's numerics, once it is compared with the user's own, and proved.

        None if it may not be chosen; then it is rejected. Raises TimeSpent.
        """
        if candidate not in self._compared:
            numerics = self.bench.numerics(candidate)
            self._compared[candidate] = numerics if numerics is not None and self.bench.is_proved(candidate) else None
            if self._compared[candidate] is None:
                self.reject(candidate)
        return self._compared[candidate]

    def _compare_leader(self) -> None:
        for leader in self.fastest(1)[self.usual]:
            gain = self.gains([leader])[leader]
            if gain.mean >= SURE * gain.deviation:
                self.compared(leader)

    def _leaves_enough(self, picked: Sequence[Variant]) -> bool:
        """Whether a round of these leaves time for a decision or, if the budget is too small for one, for comparing."""
        leader = next(iter(self.fastest(1)[self.usual]), BASE)
        comparing = [leader] * COMPARING
        can_decide = self.bench.share(comparing + [BASE, leader] * self.deciding) <= SCREENED
        left = self.bench.left - self.bench.share([BASE, *picked])
        return left > (SCREENED if can_decide else self.bench.share(comparing))

    def _picked(self) -> list[Variant]:
        """The candidates to measure next."""
        gains = self.gains(self._pool)
        # All single changes have their turn, since a setting may gain only on its own.
        single = [
            variant for variant in self._differing_from(BASE) if variant in self._pool and variant not in self.once
        ]
        first = {variant for variant in single if not saves_memory(variant)}
        picked = self._possible(
            sorted(self._pool, key=lambda variant: (variant not in first, -gains[variant].optimistic))
        )
        return picked if self._is_open(picked, gains) else self._possible(single)

    def _possible(self, order: Sequence[Variant]) -> list[Variant]:
        """The first that can run; at most one of another class, if it comes before all of the usual one."""
        picked, of_others = list[Variant](), list[Variant]()
        for variant in order:
            name = self.bench.expected(variant) if self.space.is_possible(variant) else None
            if name is None or self.bench.is_costly(variant):
                del self._pool[variant]
            elif name == self.usual:
                picked.append(variant)
            elif not picked and not of_others:
                of_others.append(variant)
            if len(picked) == AT_ONCE:
                break
        return [*of_others, *picked][:AT_ONCE]

    def _is_open(self, picked: Sequence[Variant], gains: Mapping[Variant, Gain]) -> bool:
        """Whether something else may be faster than the fastest of those picked that were measured."""
        measured = [variant for variant in picked if variant in self.once]
        best = max(measured, key=lambda variant: gains[variant].mean, default=BASE)
        level = max(0.0, gains[best].mean) if best in gains else 0.0
        most = (gains[variant].mean + SURE * gains[variant].deviation for variant in self._pool if variant != best)
        return any(optimistic > level + CLOSE for optimistic in most)

    def _measure(self, candidates: Sequence[Variant]) -> None:
        times = self.bench.round(SCREEN, [BASE, *candidates])
        self.rounds.append(times)
        for candidate in candidates:
            if candidate not in times:
                self.reject(candidate)

    def reject(self, candidate: Variant) -> None:
        """Neither measure nor choose the candidate from now on: it failed, or computes something else."""
        self.failed.add(candidate)
        self._pool.pop(candidate, None)

    def _add_around(self, *variants: Variant) -> None:
        for variant in variants:
            if variant not in self._around:
                self._around.add(variant)
                neighbours = self._differing_from(variant)
                self._pool |= dict.fromkeys(
                    neighbour for neighbour in neighbours if neighbour not in {BASE, *self.failed, *self._pool}
                )

    def _differing_from(self, variant: Variant) -> dict[Variant, None]:
        """The candidates that differ from it in one setting, in the order of the space."""
        space = self.space
        return dict.fromkeys(
            alternative for step in space.steps(variant) for alternative in space.alternatives(variant, step)
        )
