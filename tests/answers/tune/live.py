"""Live tunings of a grid's model, and how far their answers are from the grid's fastest, measured anew.

    python -m tests.answers.tune.live small_cnn    # on an idle machine; some minutes

Each tuning may take a quarter of the grid's time, and tries the keys of the grid. Then the answers, the user's own
configuration and the fastest of the grid run in the same interleaved rounds. It is all recorded in outputs/grids/, so
that an interrupted measurement continues.
"""

import argparse
import json
import math
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import fmean, stdev

from manyheads.launchers.warm_server import several
from manyheads.runner.answers.measure.runs import Runs
from manyheads.runner.answers.tune.bench import Bench
from manyheads.runner.answers.tune.budget import Budget, arm_of
from manyheads.runner.answers.tune.race import BASE, Times, Variant
from manyheads.runner.answers.tune.space import Space
from manyheads.runner.answers.tune.trial import SAME
from manyheads.runner.answers.tune.tune import SERVERS
from manyheads.runner.config.command_line import CommandLine
from manyheads.runner.config.origin import resolve_origin
from tests.answers.tune.grid import LEDGERS, MODELS, PHOTOS
from tests.answers.tune.recorded import Grid, variant_of

ROUNDS = 6
AGAIN = "again"  # the purpose of its rounds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", choices=MODELS)
    parser.add_argument("--count", type=int, default=3, help="tunings")
    asked = parser.parse_args()
    name, grid = asked.name, Grid.read(asked.name)
    folder = (LEDGERS / f"{name}-live").resolve()
    overrides = [f"data.root={PHOTOS.resolve()}" if each.startswith("data.root=") else each for each in MODELS[name]]
    answers = [_tuned(overrides, grid, folder / str(number)) for number in range(asked.count)]
    best = grid.best(grid.of_class(SAME))
    rounds = _measured(overrides, [*dict.fromkeys([best, BASE, *answers])], folder / AGAIN, name)
    for line in lines(rounds, best, answers):
        print(line, flush=True)


def _tuned(overrides: Sequence[str], grid: Grid, folder: Path) -> Variant:
    folder.mkdir(parents=True, exist_ok=True)
    terms = ("--over", ",".join(grid.axes), "--budget", f"{grid.total_seconds / 4:.0f}s", "--json")
    words = ["tune", *overrides, f"hydra.sweep.dir={folder / 'tuning'}", *terms]
    done = subprocess.run(
        [sys.executable, "-m", "manyheads.runner", *words], cwd=folder, capture_output=True, text=True
    )
    if done.returncode:
        raise SystemExit(done.stdout + done.stderr)
    (folder / "answer.json").write_text(done.stdout)
    result = json.loads(done.stdout)["result"]
    spent = {purpose: round(seconds) for purpose, seconds in result["spent"].items()}
    print(f"{result['choices'][0]}\n{spent}, {len(result['screened'])} screened", flush=True)
    return variant_of(result["choices"][0]["change"] or arm_of(BASE))


def _measured(overrides: Sequence[str], variants: Sequence[Variant], folder: Path, name: str) -> list[Times]:
    folder.mkdir(exist_ok=True)
    line, origin = resolve_origin(CommandLine.of(overrides, None))
    space, runs = Space(line, origin), Runs(folder)
    if not runs.ledger.exists():
        runs.ledger.create({"base": [*overrides], "draw": name, "format": 1})
    bench = Bench(runs, space.run, name, Budget(runs.ledger, 1e9), space.refused)
    with several(SERVERS):
        bench.prepare()
        return [bench.round(AGAIN, variants) for _ in range(ROUNDS)]


def lines(rounds: Sequence[Times], best: Variant, answers: Sequence[Variant]) -> Iterator[str]:
    """The table."""
    yield "| | configuration | seconds, of those of the grid's fastest: mean, standard error |"
    yield "|---|---|---|"
    named = [("yours", BASE), *((f"tuning {number + 1}", each) for number, each in enumerate(answers))]
    for about, each in [("the grid's fastest", best), *named]:
        behind = [times[each] - times[best] for times in rounds if {each, best} <= times.keys()]
        mean, error = fmean(behind), stdev(behind) / math.sqrt(len(behind))
        yield f"| {about} | `{arm_of(each)}` | {math.exp(mean):.2f} ± {math.exp(mean) * error:.2f} |"


if __name__ == "__main__":
    main()
