"""What is faster because it computes something else is never chosen by real runs."""

from pathlib import Path

import pytest

from manyheads.runner.answers.measure.runs import Runs
from manyheads.runner.answers.tune.bench import Bench
from manyheads.runner.answers.tune.budget import Budget, arm_of
from manyheads.runner.answers.tune.search import TuningSearch
from manyheads.runner.answers.tune.space import Space
from manyheads.runner.answers.tune.trial import SAME
from manyheads.runner.config.command_line import CommandLine
from manyheads.runner.config.origin import resolve_origin
from tests.answers.tune.test_failing import OneStep

ARMS = Path(__file__).parents[1] / "measure" / "arms.py"
OWN = (
    *(f"model={ARMS}:Net", f"data={ARMS}:Samples", "launcher=spawn", "launcher.threads_per_rank=1"),
    *("trainer.device=cpu", "data.num_workers=0", "trust=all", "+model.pause=0.02"),
)
HONEST = ("+model.pause=0",)
CHEATS = {
    ("+data.drop=0.5", "+model.pause=0"): "an epoch of the change has",
    ("+model.half=true", "+model.pause=0"): "the change computes in bfloat16",
    ("+model.matmul=medium", "+model.pause=0"): "precision of float32 products",
    ("+model.pause=0", "data.batch_size=32"): "an epoch of the change has",
}


@pytest.mark.processes
@pytest.mark.tail
def test_a_search_by_real_runs_chooses_what_is_honestly_faster(tmp_path):
    runs = Runs(tmp_path)
    runs.ledger.create({})
    line, origin = resolve_origin(CommandLine.of(OWN, None))
    space = Space(line, origin)
    bench = Bench(runs, space.run, "", Budget(runs.ledger, 400.0), space.refused)
    bench.prepare()
    search = TuningSearch(bench, OneStep(HONEST, *CHEATS), SAME)
    search.run()
    [choice] = search.outcome.choices
    assert choice.candidate == HONEST
    bench.budget.total = 1e6
    for cheat, said in CHEATS.items():
        assert bench.numerics(cheat) is None
        assert said in bench.refused[arm_of(cheat)]
