"""The bench of a tuning, with runs that only seem to be made: budget, ledger, order, and what is refused."""

from math import inf

import pytest

from manyheads.runner.answers.measure.rows import FACTS, FLOOR, TRIAL
from manyheads.runner.answers.tune.bench import LEAST_RUNS, Bench
from manyheads.runner.answers.tune.budget import Budget
from manyheads.runner.answers.tune.measurements import TimeSpent
from manyheads.runner.answers.tune.race import BASE
from manyheads.runner.answers.tune.screening import SCREEN
from manyheads.runner.answers.tune.trial import SAME, SHARES
from manyheads.runner.answers.tune.tuning_runs import updates_of_proof
from manyheads.runner.errors import ConfigurationError, Interrupted
from manyheads.runner.machine import hardware
from tests.answers.tune.played import FACTS_OF_ALL, Played
from tests.in_process import SMALL, typed

pytestmark = pytest.mark.ci

DDP = ("parallel=ddp", "launcher.nproc_per_node=2")
PARTS = ("trainer.grad_accumulation=2",)
ON_DEVICE = ("data.on_device=true",)
COMPILED = ("trainer.compile=default",)


def bench(runs, *, budget=1000.0, draw="1"):
    if not runs.ledger.exists():
        runs.ledger.create({"draw": draw})
    known = {}

    def run(variant):
        if variant not in known:
            known[variant] = typed(*SMALL, *variant)
        return known[variant]

    return Bench(runs, run, draw, Budget(runs.ledger, budget), {})


@pytest.fixture
def prepared(tmp_path):
    made = bench(Played(tmp_path))
    made.prepare()
    return made


def test_times_are_logarithms_of_the_seconds_of_an_update(prepared):
    prepared.runs.seconds = lambda arm: 0.02 if arm == "data.on_device=true" else 0.04
    times = prepared.round(SCREEN, [BASE, ON_DEVICE])
    assert times[BASE] - times[ON_DEVICE] == pytest.approx(0.693, abs=0.02)


@pytest.mark.parametrize(("slower", "trials"), [([], 2), ([9], 3), ([9, 4], 4), ([9, 5, 3], 4)])
def test_trials_are_repeated_until_two_agree(tmp_path, slower, trials):
    """``slower``: how many times as long the first ones take."""
    left = [1, *slower]  # for the facts, which come first
    made = bench(Played(tmp_path, seconds=lambda arm: 0.01 * (left.pop(0) if left else 1)))
    made.prepare()
    assert len([row for row in made.runs.ledger.rows() if row.purpose == TRIAL]) == trials


def test_the_noise_floor_is_the_users_configuration_against_itself(prepared):
    assert 0 < prepared.scale < 0.02


def test_a_run_times_the_same_number_of_updates_in_every_configuration(prepared):
    prepared.round(SCREEN, [BASE, ON_DEVICE, PARTS])
    timed = [config["trainer"]["stop_after"] for config in prepared.runs.configs[-3:]]
    assert len({*timed}) == 1


def test_the_order_is_drawn_anew_for_every_round_and_launchers_stay_together(prepared):
    orders, candidates = set(), [BASE, ON_DEVICE, DDP]
    for _ in range(12):
        prepared.round(SCREEN, candidates)
        orders.add(tuple(row.arm for row in prepared.runs.ledger.rows()[-3:]))
    assert len(orders) == 4  # two launchers, and two configurations within one of them
    assert all(order[1] != "parallel=ddp launcher.nproc_per_node=2" for order in orders)


def test_what_is_recorded_is_not_run_again(tmp_path, prepared):
    asked = [BASE, ON_DEVICE]
    times, runs = prepared.round(SCREEN, asked), len(prepared.runs.ledger.rows())
    again = bench(Played(tmp_path, seconds=lambda arm: 9.9))
    again.prepare()
    assert again.round(SCREEN, asked) == times
    assert again.left == pytest.approx(prepared.left)
    assert not again.runs.configs
    assert len(again.runs.ledger.rows()) == runs


def test_a_run_that_was_interrupted_is_run_again(tmp_path, prepared):
    number = len(prepared.runs.ledger.rows())
    prepared.runs.stop = number + 1
    with pytest.raises(Interrupted):
        prepared.round(SCREEN, [BASE, ON_DEVICE])
    again = bench(Played(tmp_path))
    again.prepare()
    assert again.round(SCREEN, [BASE, ON_DEVICE]).keys() == {BASE, ON_DEVICE}
    assert len(again.runs.configs) == 1


@pytest.mark.parametrize("reason", ["rank 1 failed first: OutOfMemoryError", "killed by SIGKILL", "stalled for 120 s"])
def test_what_fails_is_left_out_with_its_reason(tmp_path, reason):
    made = bench(Played(tmp_path, fails=lambda purpose, arm: reason if "on_device" in arm else None))
    made.prepare()
    assert made.round(SCREEN, [BASE, ON_DEVICE]).keys() == {BASE}
    assert made.refused == {"data.on_device=true": f"failed: {reason}"}


def test_what_fails_when_it_evaluates_is_not_proved(tmp_path):
    made = bench(Played(tmp_path, fails=lambda purpose, arm: "OutOfMemoryError" if purpose == "proof" else None))
    for each in (made, bench(made.runs)):  # and the same when the tuning is continued
        each.prepare()
        assert each.numerics(ON_DEVICE) == SAME
        assert not each.is_proved(ON_DEVICE)
        assert each.refused == {"data.on_device=true": "failed: OutOfMemoryError"}


def test_the_proof_evaluates_and_writes_a_checkpoint(prepared):
    assert prepared.is_proved(ON_DEVICE)
    config = prepared.runs.configs[-1]
    limits = [config["trainer"][key] for key in ("limit_train", "limit_val", "stop_after")]
    assert limits == [20, 20, 20]  # an epoch
    assert config["trainer"]["evaluate_every"] == 1
    assert config["checkpoint"]["every"] == "1epoch"
    assert config["launcher"]["timeout"] == pytest.approx((10 * (2.06 + 2 * 10) + 100) / 60, rel=0.02)


@pytest.mark.parametrize(("budget", "seconds", "updates"), [(600, 0.01, 20), (600, 0.5, 12), (10, 5, 1), (inf, 1, 20)])
def test_the_proof_makes_as_many_updates_as_a_hundredth_of_the_budget_has_room_for(budget, seconds, updates):
    assert updates_of_proof(budget, seconds, 20) == updates


def test_the_class_of_numerics_is_found_by_comparing_updates(prepared):
    assert prepared.expected(ON_DEVICE) == SAME
    assert prepared.expected(DDP) == SAME  # there is no BatchNorm
    assert prepared.expected((*DDP, *ON_DEVICE)) == SAME


def test_batchnorm_over_the_ranks_shares_is_a_class_of_its_own(tmp_path, monkeypatch):
    monkeypatch.setitem(FACTS_OF_ALL, "batch_statistics", True)
    made = bench(Played(tmp_path))
    made.prepare()
    assert made.expected(DDP) == SHARES
    assert made.expected(ON_DEVICE) == SAME


@pytest.mark.parametrize("measured", [0, 2])
def test_micro_batches_that_cannot_fit_are_not_tried(tmp_path, monkeypatch, measured):
    """``measured``: how many of the numbers of micro-batches run; more samples at once run out of memory."""
    monkeypatch.setattr(hardware, "memory_bytes", lambda: 700 * 2**20)
    parts = {4: 200, 2: 400, 1: 800}  # MB
    made = bench(
        Played(
            tmp_path,
            fails=lambda purpose, arm: "can't allocate memory" if not measured and arm.endswith("=2") else None,
            peak_mb=lambda arm: parts.get(int(arm[-1]), 0) if "grad_accumulation" in arm else 100,
        )
    )
    made.prepare()
    made.round(SCREEN, [("data.on_device=true", f"trainer.grad_accumulation={count}") for count in (4, 2)])
    assert made.is_costly(("data.on_device=true", "trainer.grad_accumulation=1"))
    assert not made.is_costly(("trainer.grad_accumulation=1",))  # another configuration
    reason = made.refused["data.on_device=true trainer.grad_accumulation=1"]
    expected = (
        "would need about 839 MB, by what 2 and 4 needed; a device has 734 MB" if measured else "ran out of memory"
    )
    assert reason.endswith(expected)


def test_what_takes_too_much_of_the_budget_is_not_tried(tmp_path):
    made = bench(Played(tmp_path), budget=300.0)
    made.prepare()
    assert made.is_costly(COMPILED)
    assert made.refused == {"trainer.compile=default": "a run takes some 32 s; a --budget of 6m or more tries it"}
    made.budget.total = 1000.0
    assert not made.is_costly(COMPILED)


def test_what_a_setting_costs_is_learned_from_its_runs(tmp_path):
    made = bench(Played(tmp_path, seconds=lambda arm: 0.5 if "on_device" in arm else 0.01))
    made.prepare()
    assert made.budget.seconds_of((*ON_DEVICE, *PARTS)) == pytest.approx(2.06, abs=0.1)
    made.round(SCREEN, [BASE, ON_DEVICE])
    assert made.budget.seconds_of((*ON_DEVICE, *PARTS)) == made.budget.seconds_of(ON_DEVICE) > 5
    assert made.budget.seconds_of(COMPILED) == pytest.approx(32, abs=0.1)
    made.round(SCREEN, [BASE, COMPILED])
    assert made.budget.seconds_of((*COMPILED, *PARTS)) < 3


def test_where_the_time_went_is_known_by_purpose(prepared):
    prepared.round(SCREEN, [BASE, ON_DEVICE])
    spent = prepared.budget.by_purpose()
    assert spent.keys() == {FACTS, TRIAL, FLOOR, SCREEN, "between"}
    assert spent[SCREEN] == pytest.approx(spent[FLOOR], rel=0.05)
    assert sum(spent.values()) == pytest.approx(prepared.budget.total - prepared.budget.left)


def test_compressed_gradients_are_a_class_of_their_own(prepared):
    compressed = (*DDP, "parallel.compression=fp16")
    assert prepared.expected(compressed) == prepared.numerics(compressed) == "parallel.compression=fp16"
    assert prepared.numerics(DDP) == SAME


@pytest.mark.parametrize(
    ("facts", "reason"),
    [
        ({"samples_per_update": [4]}, "update 1 of the change takes 4 samples, of base 8"),
        ({"dtypes": {"bfloat16": 1}}, "computes in bfloat16"),
        ({"per_epoch": 10}, "an epoch of the change has 10 updates, of base 20"),
        ({"order": "other"}, "trains on other samples than base, or in another order"),
        ({"matmul": "medium"}, "precision of float32 products to medium"),
        ({"evaluated": 4}, "evaluates 4 samples, base 8"),
    ],
)
def test_cheats_may_not_be_chosen(tmp_path, facts, reason):
    made = bench(Played(tmp_path, facts=lambda arm: facts))
    made.prepare()
    assert made.numerics(ON_DEVICE) is None
    assert made.expected(ON_DEVICE) == SAME  # others like it may be honest
    assert reason in made.refused["data.on_device=true"]


def test_a_run_that_took_fewer_samples_does_not_count(tmp_path, prepared, monkeypatch):
    honest = Played._findings

    def fewer(self, purpose, arm, seconds, updates):
        found = honest(self, purpose, arm, seconds, updates)
        return found if arm == "base" else {**found, "samples": 1}

    monkeypatch.setattr(Played, "_findings", fewer)
    assert prepared.round(SCREEN, [BASE, ON_DEVICE]).keys() == {BASE}
    assert "1 samples in as many updates" in prepared.refused["data.on_device=true"]


def test_a_round_that_does_not_fit_is_not_begun(tmp_path):
    made = bench(Played(tmp_path), budget=100.0)
    made.prepare()
    while made.share([BASE, ON_DEVICE]) <= made.left:
        made.round(SCREEN, [BASE, ON_DEVICE])
    before = len(made.runs.ledger.rows())
    with pytest.raises(TimeSpent):
        made.round(SCREEN, [BASE, ON_DEVICE])
    with pytest.raises(TimeSpent):
        made.numerics(ON_DEVICE)
    assert len(made.runs.ledger.rows()) == before
    assert made.left >= 0


def test_a_budget_that_is_too_small_is_refused_after_a_few_updates(tmp_path):
    made = bench(Played(tmp_path), budget=30.0)
    with pytest.raises(ConfigurationError, match=rf"makes at least {LEAST_RUNS}\. Allow at least \d+ s") as error:
        made.prepare()
    assert error.value.key == "--budget"
    assert [row.purpose for row in made.runs.ledger.rows()] == [FACTS, TRIAL, TRIAL]
    with pytest.raises(ConfigurationError, match="Allow at least 70 s"):  # since the first runs may be slower
        bench(Played(tmp_path), budget=50.0).prepare()
    bench(Played(tmp_path), budget=80.0).prepare()


def test_a_slow_first_run_is_not_expected_again(tmp_path):
    """It may have started the server that later ones find."""
    made = bench(runs := Played(tmp_path))
    made.prepare()
    runs.startup = 20.0
    made.round(SCREEN, [ON_DEVICE])
    assert made.budget.seconds_of(ON_DEVICE) == pytest.approx(3, abs=0.2)
    made.budget.total = 200.0
    assert made.is_costly((*ON_DEVICE, *PARTS))  # whatever takes 21 s each time must not be tried again
    assert made.budget.seconds_of((*ON_DEVICE, *PARTS)) == pytest.approx(3, abs=0.2)
    made.round(SCREEN, [ON_DEVICE])
    assert made.budget.seconds_of(ON_DEVICE) == pytest.approx((3 + 21) / 2, abs=0.2)


def test_a_trial_that_the_machine_delays_refuses_no_budget(tmp_path):
    made = bench(runs := Played(tmp_path), budget=100.0)
    start = runs.start

    def delayed(*what, **where):
        runs.startup = 20.0 if len(runs.ledger.rows()) == 1 else 1.0
        return start(*what, **where)

    runs.start = delayed
    made.prepare()
    assert [round(row.duration) for row in runs.ledger.rows()] == [1, 20, 1, 2, 2]


def test_a_budget_that_is_too_small_on_any_machine_is_refused_before_anything_starts(tmp_path):
    made = bench(Played(tmp_path), budget=5.0)
    with pytest.raises(ConfigurationError, match="Allow at least 6 s"):
        made.prepare()
    assert made.runs.ledger.rows() == []


def test_what_limits_is_measured_if_there_is_time(prepared, tmp_path):
    found = prepared.limits([BASE, ON_DEVICE])
    assert [each.name for each in found.values()] == ["loader", "loader"]
    assert found[BASE].factor == pytest.approx(1.25)
    prepared.budget.total -= prepared.budget.left - 5
    assert prepared.limits([PARTS]) == {}
