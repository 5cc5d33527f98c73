"""The search for the fastest configuration: decides what to measure next, and chooses.

It sees only logarithms of seconds and classes of numerics, so recorded measurements can be replayed.
"""

import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from statistics import median

from manyheads.runner.answers.tune.effects import Gain, worth
from manyheads.runner.answers.tune.measurements import Choice, Measurements, SearchOutcome, SearchSpace, TimeSpent
from manyheads.runner.answers.tune.race import BASE, Race, Times, Variant
from manyheads.runner.answers.tune.screening import COMPARING, Screening

DECIDE, FRESH, PRECISIONS = "decide", "fresh", "precisions"  # the purposes of rounds
FINALISTS = 4  # of each class
FRESH_ROUNDS = 5
MOST_ROUNDS = 60
SPARE = 1.25  # rounds allowed for a decision, as a multiple of the fewest that can reach one
LIKELY = 1.3  # an expected gain of at least this many deviations (90 %) counts as one


@dataclass
class TuningSearch:
    """The search.

    ``usual``: the class of numerics of the user's configuration. ``alpha``: the error rate of all claims together.
    ``within``: the rounds end once the choice is at most this fraction slower than the best of the finalists.
    """

    bench: Measurements
    space: SearchSpace
    usual: str
    alpha: float = 0.05
    within: float = 0.03
    screening: Screening = field(init=False)
    _race: Race = field(init=False)
    _alive: Mapping[str, Sequence[Variant]] = field(default_factory=dict)  # those of the race, by class
    _fresh: list[Times] = field(default_factory=list)
    _precisions: Mapping[Variant, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        deciding = math.ceil(SPARE * Race(self.bench.scale, self.alpha, 2).least_rounds)
        self.screening = Screening(self.bench, self.space, self.usual, deciding)
        self._race = Race(self.bench.scale, self.alpha, 1)

    def run(self) -> None:
        """Screen, compare the numerics of the fastest, decide between them, and measure the best two once more.

        It may be interrupted at any time: ``outcome`` is the result so far.
        """
        with suppress(TimeSpent):
            is_settled = False
            while not is_settled:  # all finalists may fail or be refused: then screening continues
                before = len(self.screening.failed)
                self.screening.run()
                self._settle()
                works = {*_together(self._alive)} - {BASE, *self.screening.failed}
                is_settled = bool(works) or len(self.screening.failed) == before
        with suppress(TimeSpent):
            self._precisions = self._in_other_precisions(self.outcome.choices[-1].candidate)

    def _settle(self) -> None:
        """Compare the numerics of the fastest, decide between them, and measure the best two once more."""
        self._alive = self._compared(self._affordable(self.screening.fastest(FINALISTS)))
        self._race = self._race_of(self._alive)
        left = self._decide()
        running = _together({name: self._race.best_two(variants) for name, variants in left.items() if variants})
        # If the rounds chose between several candidates, that makes the best one seem faster than it is.
        while len(running) > 1 and self._race.count > 2 and len(self._fresh) < FRESH_ROUNDS:
            self._fresh.append(self._round(FRESH, running))

    @property
    def outcome(self) -> SearchOutcome:
        """The choices so far: of the user's own class, and of each other class whose fastest is faster than that."""
        own_choice = self._choice(self.usual, [BASE, *self._alive.get(self.usual, [])])
        others = [
            self._choice(name, variants) for name, variants in self._alive.items() if name != self.usual and variants
        ]
        faster = (choice for choice in others if choice.candidate != BASE and choice.gain > own_choice.gain)
        return SearchOutcome((own_choice, *faster), self.screening.once, self._precisions)

    # -- finalists ---------------------------------------------------------------------------------------

    def _affordable(self, fastest: Mapping[str, list[Variant]]) -> dict[str, list[Variant]]:
        """As many of each class as the budget suffices to decide between; at least the fastest of each."""
        left = dict(fastest)
        while max(map(len, left.values())) > 1 and not self._fits(left):
            longest = max(left, key=lambda name: len(left[name]))
            left[longest] = left[longest][:-1]
        return left

    def _fits(self, alive: Mapping[str, list[Variant]]) -> bool:
        running = _together(alive)
        rounds = math.ceil(SPARE * self._race_of(alive).least_rounds) + FRESH_ROUNDS
        return self._has_time(running[1:] * COMPARING + running * rounds)

    def _compared(self, alive: Mapping[str, list[Variant]]) -> dict[str, list[Variant]]:
        """The candidates by the class that comparing found; one that is refused is replaced by the next fastest."""
        by_class: dict[str, list[Variant]] = {self.usual: []}
        others = self.screening.fastest(len(self.screening.once))
        for name, wanted in alive.items():
            queue, count = [*dict.fromkeys([*wanted, *others.get(name, [])])], len(wanted)
            while queue and count:
                variant = queue.pop(0)
                if self.bench.expected(variant) is None:  # one with the same signature was refused
                    continue
                with suppress(TimeSpent):  # another one may have been compared before
                    if (actual := self.screening.compared(variant)) is not None:
                        by_class.setdefault(actual, []).append(variant)
                        count -= 1
        return by_class

    # -- deciding ----------------------------------------------------------------------------------------

    def _race_of(self, alive: Mapping[str, Sequence[Variant]]) -> Race:
        return Race(math.sqrt(2) * self.screening.noise, self.alpha, len(_together(alive)))

    def _decide(self) -> dict[str, list[Variant]]:
        """Run rounds, and drop candidates that are shown to be slower than the fastest of their class.

        Return the remaining ones, by class.
        """
        race, left = self._race, {name: [*variants] for name, variants in self._alive.items()}
        left[self.usual].insert(0, BASE)
        everyone = {name: [*variants] for name, variants in left.items()}
        spare = FRESH_ROUNDS if race.count > 2 else 0
        while race.count > 1 and len(race.rounds) < MOST_ROUNDS and self._has_time(_together(left) * (1 + spare)):
            self._round(DECIDE, _together(left))
            for name, variants in left.items():
                variants = [variant for variant in variants if variant not in self.screening.failed]
                leader = race.leader(variants) if variants else BASE
                left[name] = [variant for variant in variants if variant == leader or not race.shows(leader, variant)]
            if all(self._is_decided(variants, everyone[name]) for name, variants in left.items() if variants):
                break
        return left

    def _has_time(self, candidates: Sequence[Variant]) -> bool:
        return self.bench.share(candidates) <= self.bench.left

    def _round(self, purpose: str, candidates: Sequence[Variant]) -> Times:
        self._race.rounds.append(times := self.bench.round(purpose, candidates))
        self.screening.failed |= {*candidates} - {*times}
        return times

    def _is_decided(self, left: Sequence[Variant], everyone: Sequence[Variant]) -> bool:
        race, leader = self._race, self._race.leader(left)
        close = all(
            race.shows(leader, variant, above=math.log1p(-self.within)) for variant in everyone if variant != leader
        )
        return close and (leader == BASE or race.shows(leader, BASE))

    # -- choosing ----------------------------------------------------------------------------------------

    def _choice(self, name: str, candidates: Sequence[Variant]) -> Choice:
        race, works = self._race, [variant for variant in candidates if variant not in {BASE, *self.screening.failed}]
        expected = {BASE: Gain(0.0, 0.0), **self.screening.gains(works, later=race.rounds)}
        faster = [
            variant
            for variant in works
            if race.shows(variant, BASE) or expected[variant].mean >= LIKELY * expected[variant].deviation
        ]
        ahead, chosen = (
            max(among, key=lambda variant: worth(variant, expected[variant])) for among in (expected, [BASE, *faster])
        )
        fresh = [times[BASE] - times[chosen] for times in self._fresh if {BASE, chosen} <= times.keys()]
        fresh = fresh or race.gains(chosen, BASE)
        bounded = [variant for variant in candidates if math.isfinite(race.interval(chosen, variant).low)]
        decided = frozenset({chosen, *bounded})
        return Choice(
            name,
            chosen,
            median(fresh or [expected[chosen].mean]),
            len(fresh),
            *((0.0, 0.0) if chosen == BASE else race.interval(chosen, BASE)),
            race.regret(chosen, decided),
            decided,
            None if ahead == chosen else ahead,
        )

    def _in_other_precisions(self, candidate: Variant) -> Mapping[Variant, float]:
        others = [
            variant for variant in self.space.in_other_precisions(candidate) if variant not in self.screening.once
        ]
        times = self.bench.round(PRECISIONS, [BASE, *others]) if others else {}
        return {variant: times[BASE] - times[variant] for variant in others if {BASE, variant} <= times.keys()}


def _together(alive: Mapping[str, Sequence[Variant]]) -> list[Variant]:
    """The candidates of all classes, with the user's own configuration first."""
    return [*dict.fromkeys([BASE, *(variant for variants in alive.values() for variant in variants)])]
