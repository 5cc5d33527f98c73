"""The search of ``tune``, repeated on resampled timings of recorded grids: ``python -m tests.answers.tune.replay``.

Prints tables of how far what it chose is from the best of the grid, how much of the grid's time it took, and how often
what it stated was true. Takes some minutes; the same numbers every time.
"""

import argparse
import math
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import median, quantiles

from manyheads.runner.answers.tune.measurements import Choice
from manyheads.runner.answers.tune.race import BASE, Variant
from manyheads.runner.answers.tune.search import TuningSearch
from manyheads.runner.answers.tune.trial import SAME
from tests.answers.tune.recorded import NAMES, BudgetTooSmall, Grid, Resampled

BUDGETS = (0.1, 0.25, 0.5, 1.0)  # of the seconds that the whole grid took
PLANTED = (0.5,)  # the same, for gains that are planted
NOISES = (1.0, 2.0)
GAINS = (0.03, 0.1, 0.5)


@dataclass(frozen=True)
class Replay:
    """One answer. ``regret``: true, against the whole grid's best of the class; ``time``: spent, of the grid's.

    ``stated``: the regret that the search states, against the ``decided`` that it measured to a decision; ``is_true``:
    whether it is; ``covers``: whether the interval of the gain holds the true one.
    """

    numerics: str
    candidate: Variant
    regret: float
    stated: float
    decided: int
    is_true: bool
    covers: bool
    time: float


def replayed(grid: Grid, budget: float, *, seed: int, **how: float) -> list[Replay]:
    """The answers of one search. ``budget``: of the grid's time; ``how``: as for Resampled. Raises BudgetTooSmall."""
    bench = Resampled(grid, budget=budget * grid.total_seconds, seed=seed, **how)
    bench.prepare()
    search = TuningSearch(bench, grid, SAME)
    search.run()
    return [_replay(grid, choice, bench.spent / grid.total_seconds) for choice in search.outcome.choices]


def _replay(grid: Grid, choice: Choice, time: float) -> Replay:
    chosen = choice.candidate
    is_true = grid.regret(chosen, choice.decided) <= choice.regret + 1e-12
    gain = grid.levels[BASE] - grid.levels[chosen]
    covers = choice.low - 1e-12 <= gain <= choice.high + 1e-12
    regret = grid.regret(chosen, grid.of_class(choice.numerics))
    return Replay(choice.numerics, chosen, regret, choice.regret, len(choice.decided), is_true, covers, time)


def searches(grid: Grid, budget: float, *, count: int, **how: float) -> tuple[list[Replay], int]:
    """All answers of so many searches, and how many were refused for their budget."""
    found, refused = [], 0
    for seed in range(count):
        try:
            found += replayed(grid, budget, seed=seed, **how)
        except BudgetTooSmall:
            refused += 1
    return found, refused


def planted(
    grid: Grid, gain: float, budget: float, *, count: int, near: bool = False, numerics: str | None = SAME
) -> float:
    """How often a configuration is chosen that is faster by ``gain`` than the best; a drawn one, each time.

    ``near``: one that differs in one setting from the user's own; ``numerics``: its class; None for one that may not be
    chosen.
    """
    chosen = 0
    neighbours = {each for step in grid.axes for each in grid.alternatives(BASE, step)}
    others = [each for each in grid.of_class(SAME) if each != BASE and (each in neighbours or not near)]
    for seed in range(count):
        variant = random.Random(seed).choice(others)
        best = grid.levels[grid.best([each for each in grid.of_class(SAME) if each != variant])]
        with_gain = grid.with_level(variant, best + math.log1p(-gain), numerics)
        chosen += any(each.candidate == variant for each in replayed(with_gain, budget, seed=seed))
    return chosen / count


def lines(grids: Sequence[str], count: int) -> Iterator[str]:
    """The table of regrets."""
    yield (
        "| grid | noise | budget | class | answered | grid's best chosen | true regret: median, 90 % | time used "
        "| stated regret: median | stated is true | gain's interval is true |"
    )
    yield "|---|---|---|---|---|---|---|---|---|---|---|"
    for name in grids:
        grid = Grid.read(name)
        for noise in NOISES:
            for budget in BUDGETS:
                found, _ = searches(grid, budget, count=count, noise=noise)
                for numerics in dict.fromkeys(each.numerics for each in found):
                    own = [each for each in found if each.numerics == numerics]
                    yield f"| {name} | x {noise:g} | {budget:.0%} | {numerics} {_cells(own, count)}"
                if not found:
                    yield f"| {name} | x {noise:g} | {budget:.0%} | refused: the budget is too small | | | | | | | |"


def _cells(found: Sequence[Replay], count: int) -> str:
    best, true, covered = (
        f"{sum(holds) / len(found):.1%}"
        for holds in zip(*((each.regret == 0, each.is_true, each.covers) for each in found), strict=True)
    )
    high = quantiles([each.regret for each in found], n=10)[-1] if len(found) > 1 else found[0].regret
    middle = [median(getattr(each, name) for each in found) for name in ("regret", "time", "stated")]
    return (
        f"| {len(found) / count:.0%} | {best} | {middle[0]:.1%}, {high:.1%} | {middle[1]:.0%} | {middle[2]:.0%} "
        f"| {true} | {covered} |"
    )


def planted_lines(grids: Sequence[str], count: int) -> Iterator[str]:
    """The table of gains that were added to one configuration."""
    heads = [f"{gain:.0%} faster" for gain in GAINS]
    yield f"| grid | budget | planted | {' | '.join(heads)} | {GAINS[-1]:.0%} faster, a cheat |"
    yield "|---|---|---|---|---|---|---|"
    for name in grids:
        grid = Grid.read(name)
        for budget in PLANTED:
            for near, where in ((True, "one setting away"), (False, "anywhere")):
                shares = [planted(grid, gain, budget, count=count, near=near) for gain in GAINS]
                shares.append(planted(grid, GAINS[-1], budget, count=count, near=near, numerics=None))
                yield f"| {name} | {budget:.0%} | {where} | {' | '.join(f'{share:.1%}' for share in shares)} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("grids", nargs="*", default=NAMES, help=f"of {', '.join(NAMES)}")
    parser.add_argument("--count", type=int, default=1000, help="searches for each line")
    arguments = parser.parse_args()
    for line in (*lines(arguments.grids, arguments.count), "", *planted_lines(arguments.grids, arguments.count)):
        print(line, flush=True)


if __name__ == "__main__":
    main()
