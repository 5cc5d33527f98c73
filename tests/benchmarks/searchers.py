"""Other searches of the grids that ``tune`` is replayed on, with the same resampled timings and budgets.

``python -m tests.benchmarks.searchers`` prints a table: torch's defaults, which are the user's own configuration;
random search without repetition; and Ray Tune with Optuna, where both are installed. Each takes the fastest that it
has measured, pays for its runs only, and compares no numerics, since none of them does.
"""

import argparse
import importlib.util
import random
from collections.abc import Callable, Iterator, Sequence
from statistics import median, quantiles

from manyheads.runner.answers.tune.race import BASE, Variant
from manyheads.runner.answers.tune.screening import SCREEN
from manyheads.runner.answers.tune.trial import SAME
from manyheads.runner.errors import BudgetSpent
from tests.answers.tune.recorded import NAMES, Grid, Resampled

BUDGETS = (0.25, 0.5)  # of the seconds that the whole grid took
Searcher = Callable[[Grid, Resampled, int], Variant]


def defaults(grid: Grid, bench: Resampled, seed: int) -> Variant:
    return BASE


def at_random(grid: Grid, bench: Resampled, seed: int) -> Variant:
    """The fastest of so many drawn ones as fit into the budget."""
    variants = [*grid.seconds]
    random.Random(seed).shuffle(variants)
    measured: dict[Variant, float] = {}
    try:
        for each in variants:
            measured |= bench.round(SCREEN, [each])
    except BudgetSpent:
        pass
    return min(measured, key=lambda each: measured[each], default=BASE)


def ray_tune(grid: Grid, bench: Resampled, seed: int) -> Variant:
    """Ray Tune's search by Optuna's estimator (TPE), asked for one trial after another."""
    import optuna
    from ray.tune.search.optuna import OptunaSearch

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    space = {key: optuna.distributions.CategoricalDistribution(values) for key, values in grid.axes.items()}
    searcher = OptunaSearch(space, metric="seconds", mode="min", seed=seed)
    measured: dict[Variant, list[float]] = {}
    for number in range(10 * len(grid.seconds)):  # it may propose the same again, or what cannot run
        found = searcher.suggest(str(number))
        variant = grid.variant(found)
        try:
            times = bench.round(SCREEN, [variant]) if variant in grid.seconds else {}
        except BudgetSpent:
            break
        if variant in times:
            measured.setdefault(variant, []).append(times[variant])
            searcher.on_trial_complete(str(number), {"seconds": times[variant]})
        else:
            searcher.on_trial_complete(str(number), error=True)
    return min(measured, key=lambda each: min(measured[each]), default=BASE)


def searchers() -> dict[str, Searcher]:
    found: dict[str, Searcher] = {"torch's defaults": defaults, "random search": at_random}
    if importlib.util.find_spec("ray.tune") and importlib.util.find_spec("optuna"):
        found["Ray Tune, Optuna's TPE"] = ray_tune
    return found


def lines(grids: Sequence[str], count: int) -> Iterator[str]:
    """The table."""
    yield "| grid | budget | search | time used | computes something else | true regret of the others: median, 90 % |"
    yield "|---|---|---|---|---|---|"
    for name in grids:
        grid = Grid.read(name)
        for budget in BUDGETS:
            for about, search in searchers().items():
                cells = _cells(grid, search, budget, 1 if search is defaults else count)
                yield f"| {name} | {budget:.0%} | {about} {cells}"


def _cells(grid: Grid, search: Searcher, budget: float, count: int) -> str:
    times, regrets = [], []
    for seed in range(count):
        bench = Resampled(grid, budget=budget * grid.total_seconds, seed=seed)
        chosen = search(grid, bench, seed)
        times.append(bench.spent / grid.total_seconds)
        if grid.classes[chosen] == SAME:
            regrets.append(grid.regret(chosen, grid.of_class(SAME)))
    high = quantiles(regrets, n=10)[-1] if len(regrets) > 1 else max(regrets, default=0.0)
    others = f"{1 - len(regrets) / count:.1%}"
    return f"| {median(times):.0%} | {others} | {median(regrets or [0.0]):.1%}, {high:.1%} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("grids", nargs="*", default=NAMES, help=f"of {', '.join(NAMES)}")
    parser.add_argument("--count", type=int, default=60, help="searches for each line")
    arguments = parser.parse_args()
    for line in lines(arguments.grids, arguments.count):
        print(line, flush=True)


if __name__ == "__main__":
    main()
