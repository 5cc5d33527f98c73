"""Configurations that fail while they are measured by real runs: the tuning goes on without them, and says why."""

from pathlib import Path

import pytest

from manyheads.runner.answers.measure.rows import COMPLETED, FACTS, FLOOR, TRIAL, RunRow
from manyheads.runner.answers.measure.runs import Runs
from manyheads.runner.answers.tune import tuning_runs
from manyheads.runner.answers.tune.bench import Bench
from manyheads.runner.answers.tune.budget import Budget, arm_of
from manyheads.runner.answers.tune.race import BASE
from manyheads.runner.answers.tune.screening import SCREEN
from manyheads.runner.answers.tune.search import DECIDE, TuningSearch
from manyheads.runner.answers.tune.space import Space
from manyheads.runner.answers.tune.trial import SAME
from manyheads.runner.config.command_line import CommandLine
from manyheads.runner.config.origin import resolve_origin
from manyheads.runner.errors import ConfigurationError
from manyheads.runner.run.run_folder import RunFolder
from tests.in_process import SMALL
from tests.launchers.conftest import survivors
from tests.tail import tail

GROWING = Path(__file__).with_name("growing.py")
OWN = (
    *(each for each in SMALL if not each.startswith("model.")),
    *("model=custom", "model._target_=tests.launchers.faulty.Faulty", "+model.how=nothing"),
    *("launcher=spawn", "parallel=ddp", "launcher.nproc_per_node=2"),
)


def failing(how, **settings):
    """A configuration that fails in its seventh update, on rank 1."""
    return tuple(f"+model.{key}={value}" for key, value in ({"how": how, "rank": 1, "step": 7} | settings).items())


def bench_in(folder, own=OWN, *, batch=8, budget=3600.0):
    """One whose user's own configuration is measured already, as ``prepare`` records it."""
    runs = Runs(folder)
    runs.ledger.create({})
    line, origin = resolve_origin(CommandLine.of(own, None))
    space = Space(line, origin)
    timed = {"seconds": 0.1, "updates": 10, "samples": 25 * batch}
    known = [(FACTS, 0, 0, {"per_epoch": 60}), (TRIAL, 0, 0, timed), (TRIAL, 0, 1, timed)]
    known += [(FLOOR, number, place, timed) for number in range(5) for place in range(2)]
    for number, (purpose, round, place, findings) in enumerate(known):
        row = RunRow(number, purpose, round, place, arm_of(BASE), 1, "", 0.0, COMPLETED, 0.3, findings=findings)
        runs.ledger.write(row)
    bench = Bench(runs, space.run, "", Budget(runs.ledger, budget), space.refused)
    bench.prepare()
    return bench


@pytest.mark.processes
@pytest.mark.parametrize(
    ("variant", "said"),
    [
        (failing("allocate"), "can't allocate memory"),
        tail(failing("kill"), "SIGKILL"),
        tail(failing("lose the device"), "device is lost"),
        tail(failing("os._exit"), "exit code 9"),
        tail(failing("kill", rank=0, step=1), "SIGKILL"),
    ],
)
def test_what_fails_on_one_rank_is_left_out(tmp_path, variant, said):
    bench = bench_in(tmp_path)
    assert bench.round(SCREEN, [BASE, variant]).keys() == {BASE}
    reason = bench.refused[arm_of(variant)]
    assert said in reason
    assert [row.folder for row in bench.runs.ledger.rows() if survivors(RunFolder(tmp_path / row.folder))] == []
    assert bench.round(DECIDE, [BASE]).keys() == {BASE}


@pytest.mark.processes
@pytest.mark.tail
def test_what_hangs_is_ended(tmp_path, monkeypatch):
    monkeypatch.setattr(tuning_runs, "LEAST_PATIENCE", 20.0)
    bench, variant = bench_in(tmp_path), failing("sleep")
    assert bench.round(SCREEN, [BASE, variant]).keys() == {BASE}
    assert "launcher.timeout" in bench.refused[arm_of(variant)]


@pytest.mark.processes
@pytest.mark.parametrize(
    "variant",
    [
        failing("allocate", evaluating="true", step=2),
        tail(failing("kill", evaluating="true", step=2)),
    ],
)
def test_what_fails_in_an_evaluation_is_not_proved(tmp_path, variant):
    bench = bench_in(tmp_path)
    assert bench.round(SCREEN, [variant]).keys() == {variant}
    assert not bench.is_proved(variant)
    assert "rank 1" in bench.refused[arm_of(variant)]


@pytest.mark.processes
@pytest.mark.parametrize("hungry", [tail("false"), tail("true")])
def test_a_larger_sample_later_in_the_data_is_met(tmp_path, hungry):
    kept = ("launcher=spawn", "launcher.nproc_per_node=2", "parallel=ddp", "launcher.threads_per_rank=1")
    files = (f"model={GROWING}:Net", f"data={GROWING}:Samples", "trust=all")
    bench = bench_in(
        tmp_path, (*files, *kept, "trainer.device=cpu", "data.num_workers=0", "data.batch_size=2"), batch=2
    )
    variant = (f"+model.hungry={hungry}",)
    assert bench.round(SCREEN, [variant]).keys() == {variant}
    assert bench.is_proved(variant) == (hungry == "false")


class OneStep:
    """A space in which all of these are tried."""

    def __init__(self, *variants):
        self.variants = variants

    def steps(self, variant):
        return ["how"]

    def alternatives(self, variant, step):
        return [each for each in self.variants if each != variant]

    def is_possible(self, variant):
        return True

    def in_other_precisions(self, variant):
        return []


@pytest.mark.processes
@pytest.mark.tail
def test_nothing_but_the_users_own_configuration_works(tmp_path):
    broken = [failing(how) for how in ("allocate", "kill", "raise", "sys.exit")]
    bench = bench_in(tmp_path)
    search = TuningSearch(bench, OneStep(*broken), SAME)
    search.run()
    [choice] = search.outcome.choices
    assert choice.candidate == BASE
    assert bench.refused.keys() == {*map(arm_of, broken)}


@pytest.mark.processes
@pytest.mark.tail
def test_a_budget_that_is_too_small_is_refused_by_a_sentence(tmp_path):
    runs = Runs(tmp_path)
    runs.ledger.create({})
    line, origin = resolve_origin(CommandLine.of(OWN, None))
    with pytest.raises(ConfigurationError, match="a tuning makes at least 30. Allow at least"):
        Bench(runs, Space(line, origin).run, "", Budget(runs.ledger, 9.0), {}).prepare()
    assert {FACTS, TRIAL} <= {row.purpose for row in runs.ledger.rows()} <= {FACTS, TRIAL, FLOOR}
