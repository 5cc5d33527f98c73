"""Live tunings of what a grid was recorded for, and their answers measured again beside the grid's best.

    python -m tests.commands.tune.live small_cnn --tunings 3    # on an idle machine

Each tuning has a quarter of the seconds that the grid took, and tries the grid's keys. Then the user's own
configuration, the grid's best and all answers run in interleaved rounds. Both are continued when they are interrupted;
the last line is what was found, as JSON.
"""

import argparse
import json
import math
import os
import time
from pathlib import Path
from statistics import median

from manyheads.launchers.warm_server import several
from manyheads.runner.commands.tune.bench import Bench
from manyheads.runner.commands.tune.budget import Budget
from manyheads.runner.commands.tune.race import BASE, Variant
from manyheads.runner.commands.tune.space import Space
from manyheads.runner.commands.tune.terms import Terms
from manyheads.runner.commands.tune.trial import SAME
from manyheads.runner.commands.tune.tune import SERVERS, tune
from manyheads.runner.config.command_line import CommandLine
from manyheads.runner.config.origin import resolve_origin
from manyheads.runner.judge.runs import Runs
from tests.commands.tune.grid import AXES, LEDGERS, MODELS, PHOTOS
from tests.commands.tune.recorded import NAMES, Grid

PART = 0.25  # of the grid's time
CHECK = "check"  # the purpose of the rounds afterwards


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("grid", choices=NAMES)
    parser.add_argument("--tunings", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=12)
    arguments = parser.parse_args()
    name, grid = arguments.grid, Grid.read(arguments.grid)
    overrides = [each.replace(str(PHOTOS), str(PHOTOS.resolve())) for each in MODELS[name]]
    folder = (LEDGERS / "live" / name).resolve()
    folder.mkdir(parents=True, exist_ok=True)
    os.chdir(folder)
    answers = []
    for number in range(arguments.tunings):
        terms = Terms(budget=f"{PART * grid.total_seconds:.0f}", over=",".join(AXES[name]))
        began = time.monotonic()
        answer = tune([*overrides, f"hydra.sweep.dir={folder / str(number)}"], terms)
        answer.show()
        choice = next(each for each in answer.choices if each.numerics == SAME)
        found = {"seconds": time.monotonic() - began, "change": choice.change, "speedup": choice.speedup}
        answers.append({**found, "spent": answer.spent, "screened": len(answer.screened), "decided": choice.decided})
    best = grid.best(grid.of_class(SAME))
    chosen = [tuple(answer["change"].split()) for answer in answers]
    speeds = checked(folder / CHECK, overrides, [BASE, best, *chosen], arguments.rounds)
    for answer, each in zip(answers, chosen, strict=True):
        answer |= {"measured again": speeds[each], "behind the grid's best": 1 - speeds[each] / speeds[best]}
    print(json.dumps({"grid's best": best, "measured again": speeds[best], "tunings": answers}))


def checked(folder: Path, overrides: list[str], variants: list[Variant], rounds: int) -> dict[Variant, float]:
    """How many times as fast as the first of them each is, in the median of interleaved rounds."""
    line, origin = resolve_origin(CommandLine.of(overrides, None))
    folder.mkdir(exist_ok=True)
    runs, space = Runs(folder), Space(line, origin)
    if not runs.ledger.exists():
        runs.ledger.create({"base": overrides, "draw": str(folder), "format": 1})
    bench = Bench(runs, space.run, str(folder), Budget(runs.ledger, math.inf), space.refused)
    with several(SERVERS):
        bench.prepare()
        times = [bench.round(CHECK, [*dict.fromkeys(variants)]) for _ in range(rounds)]
    return {each: math.exp(median(found[variants[0]] - found[each] for found in times)) for each in variants}


if __name__ == "__main__":
    main()
