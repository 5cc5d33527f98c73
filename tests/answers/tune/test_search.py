"""The search for the fastest configuration, on benches whose truth is known."""

import math
import random
from itertools import product

import pytest

from manyheads.runner.answers.tune.measurements import TimeSpent
from manyheads.runner.answers.tune.race import BASE, Race
from manyheads.runner.answers.tune.search import TuningSearch

pytestmark = pytest.mark.ci

SAME, SHARES = "same", "shares"
SETTINGS = {"parallel": ["single", "ddp"], "workers": ["0", "1", "2"], "format": ["first", "last"], "parts": ["1", "2"]}


class Grid:
    """All combinations of SETTINGS; a variant names the values that are not the first."""

    def steps(self, variant):
        return [*SETTINGS]

    def alternatives(self, variant, step):
        own = values(variant)
        return [named(own | {step: each}) for each in SETTINGS[step] if each != own[step]]

    def is_possible(self, variant):
        return True

    def in_other_precisions(self, variant):
        return [(*variant, "precision=bf16")]


def values(variant):
    return {key: each[0] for key, each in SETTINGS.items()} | dict(each.split("=") for each in variant)


def named(found):
    return tuple(f"{key}={each}" for key, each in found.items() if each != SETTINGS[key][0])


ALL = [named(dict(zip(SETTINGS, each, strict=True))) for each in product(*SETTINGS.values())]


class Bench:
    """``truth``: of a variant's logarithm of seconds; ``noise``: its standard deviation from round to round."""

    def __init__(self, truth, *, noise=0.003, runs=400, seed=0, failing=(), classes=lambda variant: SAME):
        self.truth, self.noise, self.runs, self.failing, self.classes = truth, noise, runs, failing, classes
        self.random, self.done, self.asked, self.unproved = random.Random(seed), 0, [], set()
        self.comparing = 0  # runs that it takes to compare a candidate
        floor = sorted(abs(self.random.gauss(0, noise * math.sqrt(2))) for _ in range(5))
        self.scale = max(1.4826 * floor[2], 1e-9)

    @property
    def left(self):
        return 1 - self.done / self.runs if self.runs else 0.0

    def share(self, candidates):
        return len(candidates) / self.runs if self.runs else 1.0

    def round(self, purpose, candidates):
        if self.done + len(candidates) > self.runs:
            raise TimeSpent
        self.done += len(candidates)
        self.asked.append((purpose, tuple(candidates)))
        drift = self.random.gauss(0, 0.2)
        return {
            each: self.truth(each) + drift + self.random.gauss(0, self.noise)
            for each in candidates
            if not any(setting in self.failing for setting in each)
        }

    def expected(self, variant):
        return self.classes(variant) or SAME

    def numerics(self, variant):
        if self.done + self.comparing > self.runs:
            raise TimeSpent
        self.done += self.comparing
        return self.classes(variant)

    def is_costly(self, variant):
        return False

    def is_proved(self, variant):
        return not self.unproved & {*variant}


def gains(**known):
    """A truth in which each setting ``key_value`` takes so much off the logarithm of seconds."""
    return lambda variant: -sum(known.get(each.replace("=", "_"), 0.0) for each in variant)


def found(bench, **how):
    search = TuningSearch(bench, Grid(), SAME, **how)
    search.run()
    return search.outcome


@pytest.mark.parametrize("gain", [0.03, 0.1, 0.5])
def test_a_planted_gain_is_found(gain):
    [choice] = found(Bench(gains(workers_2=gain, format_last=-0.1), noise=0.005)).choices
    assert choice.candidate == ("workers=2",)
    assert choice.low <= gain <= choice.high
    assert choice.gain == pytest.approx(gain, abs=0.02)


def test_gains_add_up_over_settings():
    [choice] = found(Bench(gains(parallel_ddp=0.4, workers_1=0.2, format_last=0.1))).choices
    assert choice.candidate == ("parallel=ddp", "workers=1", "format=last")


def test_the_users_own_configuration_may_be_the_fastest():
    [choice] = found(Bench(gains(**{f"{key}_{each}": -0.2 for key, own in SETTINGS.items() for each in own}))).choices
    assert choice.candidate == BASE
    assert choice.gain == 0


def test_what_computes_something_else_is_never_chosen():
    cheats = Bench(gains(parts_2=0.9, workers_1=0.1), classes=lambda each: None if "parts=2" in each else SAME)
    [choice] = found(cheats).choices
    assert choice.candidate == ("workers=1",)


def test_each_class_of_numerics_has_its_own_answer():
    bench = Bench(
        gains(parallel_ddp=0.5, workers_1=0.2), classes=lambda each: SHARES if "parallel=ddp" in each else SAME
    )
    same, shares = found(bench).choices
    assert (same.numerics, same.candidate) == (SAME, ("workers=1",))
    assert (shares.numerics, shares.candidate) == (SHARES, ("parallel=ddp", "workers=1"))


def test_a_run_that_uses_up_the_rest_of_the_budget_does_not_lose_what_was_found():
    bench = Bench(gains(parallel_ddp=0.5, workers_1=0.2), runs=60)
    bench.comparing = 6
    inner = bench.round

    def round(purpose, candidates):
        bench.done += 25 if bench.left < 0.5 else 0
        return inner(purpose, candidates)

    bench.round = round
    [choice] = found(bench).choices
    assert bench.left < 0.1
    assert choice.candidate == ("parallel=ddp", "workers=1")


def test_what_fails_is_not_chosen():
    [choice] = found(Bench(gains(parallel_ddp=0.5, workers_1=0.2), failing={"parallel=ddp"})).choices
    assert choice.candidate == ("workers=1",)


def test_what_cannot_evaluate_is_not_chosen():
    bench = Bench(gains(parallel_ddp=0.5, workers_1=0.2))
    bench.unproved = {"parallel=ddp"}
    [choice] = found(bench).choices
    assert choice.candidate == ("workers=1",)


def test_what_fails_later_is_not_chosen():
    bench = Bench(gains(parallel_ddp=0.5, workers_1=0.2))
    inner = bench.round

    def round(purpose, candidates):
        bench.failing = set() if purpose == "screen" else {"workers=1"}
        return inner(purpose, candidates)

    bench.round = round
    [choice] = found(bench).choices
    assert choice.candidate == ("parallel=ddp",)


def test_the_last_alternative_is_tried_too():
    four = [(f"how={number}",) for number in range(4)]
    space = Grid()
    space.steps = lambda variant: ["how"]
    space.alternatives = lambda variant, step: [each for each in four if each != variant]
    bench = Bench(gains(), failing={each for (each,) in four})
    TuningSearch(bench, space, SAME).run()
    assert {each for purpose, asked in bench.asked if purpose == "screen" for each in asked} == {BASE, *four}


@pytest.mark.parametrize(("gain", "expected"), [(0.5, ("parallel=fsdp", "workers=1")), (-0.5, ("workers=1",))])
def test_what_saves_memory_is_tried_after_each_other_single_change(monkeypatch, gain, expected):
    monkeypatch.setitem(SETTINGS, "parallel", ["single", "fsdp"])
    lost = -0.2
    bench = Bench(gains(parallel_fsdp=gain, workers_1=0.2, workers_2=lost, format_last=lost, parts_2=lost))
    [choice] = found(bench).choices
    asked = [each for purpose, asked in bench.asked if purpose == "screen" for each in asked if each != BASE]
    others = {named({key: each}) for key, own in SETTINGS.items() for each in own[1:] if key != "parallel"}
    assert set(asked[: len(others)]) == others
    assert any("parallel=fsdp" in each for each in asked)
    assert choice.candidate == expected


def test_nothing_else_works():
    [choice] = found(Bench(gains(), failing={f"{key}={each}" for key, own in SETTINGS.items() for each in own})).choices
    assert (choice.candidate, choice.decided) == (BASE, {BASE})


@pytest.mark.parametrize("runs", [0, 5, 20, 40, 80])
def test_any_budget_ends_in_an_answer(runs):
    bench = Bench(gains(parallel_ddp=0.5), runs=runs)
    outcome = found(bench)
    assert bench.done <= runs
    assert outcome.choices[0].numerics == SAME


def test_other_precisions_are_measured_once():
    bench = Bench(lambda each: -0.7 * ("precision=bf16" in each) + 0.1 * len(each))
    precisions = found(bench).precisions
    assert {each: round(gain, 1) for each, gain in precisions.items()} == {("precision=bf16",): 0.6}


def test_the_stated_regret_is_true():
    """Of 40 searches on random truths, with noise as large as the differences."""
    wrong = 0
    for seed in range(40):
        drawn = random.Random(seed)
        known = {f"{key}_{each}": drawn.gauss(0, 0.05) for key, own in SETTINGS.items() for each in own[1:]}
        bench = Bench(gains(**known), noise=0.05, seed=seed, runs=120)
        [choice] = found(bench).choices
        best = min(map(bench.truth, choice.decided))
        wrong += 1 - math.exp(best - bench.truth(choice.candidate)) > choice.regret + 1e-12
    assert wrong <= 2


def test_intervals_of_a_race_hold_for_all_pairs_at_once():
    race = Race(scale=0.02, alpha=0.05, count=3)
    race.rounds += [{BASE: 1.0, ("a=1",): 0.5, ("b=1",): 0.5} for _ in range(30)]
    assert race.interval(("a=1",), BASE).low > 0.4
    assert race.leader([BASE, ("a=1",)]) == ("a=1",)
    assert race.regret(("a=1",), [BASE, ("a=1",)]) == 0.0
    assert 0 <= race.regret(("a=1",), [("b=1",)]) < 0.05
    assert race.regret(BASE, [("a=1",)]) == pytest.approx(1 - math.exp(-0.5), abs=0.02)
