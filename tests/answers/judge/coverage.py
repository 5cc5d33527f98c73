"""How often each way to judge is wrong, and how many rounds it takes: ``python -m tests.answers.judge.coverage``.

Series are drawn from known distributions, or cut from measured rounds of equal arms (``--live``): those in series.json,
or of the judgements that are named. They are looked at after each round.
"""

import argparse
import json
import math
from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np

from manyheads.runner.answers.judge.claims import pairs
from manyheads.runner.answers.judge.recorded import read
from manyheads.runner.answers.measure.hypotheses import spread
from manyheads.runner.answers.measure.rows import ROUND
from manyheads.runner.answers.measure.sequential import MEAN, PAIRED, SYMMETRIC, Test

ALPHA, FLOOR_ROUNDS = 0.05, 5
RECORDED = Path(__file__).with_name("series.json")  # by series, the difference of each round
REDRAWS = 200
Draw = Callable[[np.random.Generator, int, int], np.ndarray]


def first_verdicts(
    test: Test, differences: np.ndarray, scale: np.ndarray, alpha: float | np.ndarray = ALPHA
) -> tuple[np.ndarray, np.ndarray]:
    """By series, after how many rounds it is better and worse; inf for never.

    ``differences``: (series, rounds); ``alpha``: the error rate, or that of each series.
    """
    threshold = np.log(2 / np.asarray(alpha)).reshape(-1, 1)
    scaled = differences / scale[:, None]
    found = []
    for sign in (1, -1):
        logs = np.cumsum(test.log_bets(sign * scaled), axis=1)
        evidence = np.logaddexp.reduce(logs, axis=2) - math.log(logs.shape[2])
        found.append(_first(evidence >= threshold))
    return found[0], found[1]


def _first(hits: np.ndarray) -> np.ndarray:
    return np.where(hits.any(axis=1), hits.argmax(axis=1) + 1, np.inf)


def t_test_at_each_look(differences: np.ndarray) -> np.ndarray:
    """By series, after how many rounds a two-sided t-test is significant, from the third on."""
    from scipy import stats  # here, since it takes a second, which each of xdist's workers would spend

    counts = np.arange(1, differences.shape[1] + 1)
    means = np.cumsum(differences, axis=1) / counts
    squares = np.cumsum(differences**2, axis=1) / counts - means**2
    with np.errstate(divide="ignore", invalid="ignore"):
        statistic = means / np.sqrt(squares / (counts - 1))
        hits = 2 * stats.t.sf(np.abs(statistic), counts - 1) < ALPHA
    hits[:, :2] = False
    return _first(hits)


def scale_of(floor: np.ndarray) -> np.ndarray:
    """The scale of each series from its own rounds of base against base."""
    return np.array([spread(each) for each in floor])


def show(name: str, differences: np.ndarray, scale: np.ndarray) -> None:
    """A line: better and worse in percent, and the median number of rounds, by each way to judge."""
    cells = []
    for test in (SYMMETRIC, MEAN):
        better, worse = first_verdicts(test, differences, scale)
        rounds = np.median(np.minimum(better, worse))
        kept, discarded = 100 * np.mean(better < worse), 100 * np.mean(worse < better)
        cells.append(f"{kept:5.1f} / {discarded:5.1f} % {rounds:4.0f}")
    looked = 100 * np.isfinite(t_test_at_each_look(differences)).mean()
    one = differences[:, :3].mean(axis=1) > 0  # what is best after three, and after five, is kept
    five = differences[:, :5].mean(axis=1) > 0
    print(f"| {name} | {' | '.join(cells)} | {looked:.0f} % | {100 * one.mean():.0f} % | {100 * five.mean():.0f} % |")


def drawn(series: int, rounds: int) -> None:
    """The table of known distributions."""
    numbers = np.random.default_rng(0)
    normal: Draw = lambda g, *size: g.normal(size=size)  # noqa: E731
    coin: Draw = lambda g, *size: g.choice([-1.0, 1.0], size)  # noqa: E731
    heavy: Draw = lambda g, *size: g.standard_t(3, size)  # noqa: E731
    kinds: dict[str, tuple[Draw, Draw]] = {
        "equal: normal": (normal, normal),
        "equal: heavy tails (t, 3)": (heavy, heavy),
        "equal: drift, autocorrelated": (lambda g, *s: coin(g, *s) * _ar(g, *s), normal),
        "equal: rare stalls of either arm": (lambda g, *s: normal(g, *s) + coin(g, *s) * _stalls(g, *s), normal),
        **{
            f"effect {effect} sd": (lambda g, *s, effect=effect: normal(g, *s) + effect, normal)
            for effect in (0.25, 0.5, 1, 2, 4)
        },
        "outside: mean 0, change skewed (exponential)": (
            lambda g, *s: normal(g, *s) + 1 - g.exponential(size=s),
            normal,
        ),
        "outside: mean 0, change skewed (lognormal)": (lambda g, *s: 0.5 * normal(g, *s) + _lognormal(g, *s), normal),
        "outside: mean 0, change 4 times as erratic": (lambda g, *s: normal(g, *s) - 4 * normal(g, *s), normal),
        "outside: mean 0, change stalls (3 %), faster otherwise": (
            lambda g, *s: normal(g, *s) - _stalls(g, *s) + 0.24,
            normal,
        ),
    }
    for name, (draw, floor) in kinds.items():
        show(name, draw(numbers, series, rounds), scale_of(floor(numbers, series, FLOOR_ROUNDS)))


def paired(series: int, rounds: int) -> None:
    """By how far the seed decides what both arms find, the rates of verdicts, and their rounds, unpaired and paired.

    A run's standard deviation is 1. The noise floor is that of runs with different seeds.
    """
    numbers = np.random.default_rng(0)
    shapes: dict[str, Callable[..., np.ndarray]] = {
        "gain of 1 sd": lambda *size: 1 + numbers.normal(size=size),
        "gain of 0.5 sd": lambda *size: 0.5 + numbers.normal(size=size),
        "equal: normal": lambda *size: numbers.normal(size=size),
        "equal: heavy tails (t, 3)": lambda *size: numbers.standard_t(3, size) / math.sqrt(3),
        "same mean, change skewed (exponential)": lambda *size: 1 - numbers.exponential(size=size),
        "same mean, change skewed (lognormal)": lambda *size: _lognormal(numbers, *size),
        "same mean, change stalls in 3 % of rounds": lambda *size: (
            (numbers.normal(size=size) - _stalls(numbers, *size) + 0.24) / 1.7
        ),
    }
    for name, draw in shapes.items():
        gain = float(name.split()[2]) if name.startswith("gain") else 0.0
        cells = []
        for test, correlation in ((MEAN, 0.0), *((PAIRED, each) for each in (0.0, 0.5, 0.7, 0.9, 0.99))):
            spread_of_rounds = math.sqrt(2 - 2 * correlation)
            differences = gain + (draw(series, rounds) - gain) * spread_of_rounds
            scale = scale_of(math.sqrt(2) * numbers.normal(size=(series, FLOOR_ROUNDS)))
            better, worse = first_verdicts(test, differences, scale)
            kept, discarded = 100 * np.mean(better < worse), 100 * np.mean(worse < better)
            middle = np.median(np.minimum(better, worse))
            cells.append(f"{kept:.1f} / {discarded:.1f} %" + (f", {middle:.0f}" if math.isfinite(middle) else ""))
        print(f"| {name} | {' | '.join(cells)} |")


def _ar(numbers: np.random.Generator, series: int, rounds: int) -> np.ndarray:
    found = numbers.normal(size=(series, rounds))
    for number in range(1, rounds):
        found[:, number] += 0.95 * found[:, number - 1]
    return found


def _stalls(numbers: np.random.Generator, *size: int) -> np.ndarray:
    return np.where(numbers.random(size) < 0.03, 8.0, 0.0)


def _lognormal(numbers: np.random.Generator, *size: int) -> np.ndarray:
    return (np.exp(0.5) - numbers.lognormal(0, 1, size)) / 2.16


def series(paths: list[Path]) -> dict[str, np.ndarray]:
    """By name the differences of each round: of these judgements, or without any of the recorded series."""
    if not paths:
        return {name: np.array(each) for name, each in json.loads(RECORDED.read_text()).items()}
    return {f"{path.parent.parent.name} {path.parent.name}": measured_differences(path) for path in paths}


def live(measured: dict[str, np.ndarray], rounds: int) -> None:
    """The same of contiguous blocks of measured rounds of equal arms, each after its own rounds for the floor.

    Blocks begin at every round, so neighbours share most of theirs; coins are those that were drawn. ``blocks`` counts
    them, ``apart`` those that share nothing.
    """
    from scipy import stats

    length = FLOOR_ROUNDS + rounds
    measured = {name: each for name, each in measured.items() if len(each) >= length}
    for name, each in measured.items():
        found = blocks(each, length)
        show(f"{name}, {rounds} rounds: {len(found[1])} blocks, {len(each) // length} apart", *found)
    differences, scale = all_blocks(measured.values(), length)
    show(f"all, {rounds} rounds: {len(scale)} blocks", differences, scale)
    own, count = wrong(measured.values(), rounds), effective(measured, rounds)
    low, high = (
        stats.beta.ppf(each, own * count + at, (1 - own) * count + 1 - at) for each, at in ((0.025, 0), (0.975, 1))
    )
    print(
        f"\nWrong in {100 * own:.1f} % of the blocks. With other coins this varies as among {count:.0f} independent "
        f"ones: the rate is between {100 * np.nan_to_num(low):.1f} and {100 * high:.1f} %, with 95 % confidence."
    )


def effective(measured: dict[str, np.ndarray], rounds: int) -> float:
    """How many independent blocks would be wrong as variably as these are with other coins."""
    numbers = np.random.default_rng(0)
    rates = [
        wrong([each * numbers.choice([-1, 1], len(each)) for each in measured.values()], rounds) for _ in range(REDRAWS)
    ]
    return float(np.mean(rates) * (1 - np.mean(rates)) / np.var(rates))


def measured_differences(path: Path) -> np.ndarray:
    """By round, of a judgement's file."""
    question, rows = read(json.loads(path.read_text()))
    return np.array([pair.difference(question.aims[0]) for pair in pairs(rows, ROUND)])


def blocks(measured: np.ndarray, length: int) -> tuple[np.ndarray, np.ndarray]:
    """The rounds to judge of each block, and its scale."""
    found = np.stack([measured[start : start + length] for start in range(len(measured) - length + 1)])
    return found[:, FLOOR_ROUNDS:], scale_of(found[:, :FLOOR_ROUNDS])


def all_blocks(measured: Iterable[np.ndarray], length: int) -> tuple[np.ndarray, np.ndarray]:
    """The blocks of all series, as ``blocks``."""
    found = [blocks(each, length) for each in measured if len(each) >= length]
    differences, scale = (np.concatenate(each) for each in zip(*found, strict=True))
    return differences, scale


def redrawn(measured: dict[str, np.ndarray], rounds: int, times: int) -> None:
    """How often the default test is wrong in blocks of a series, with the coins as drawn and with others.

    For equal arms, another coin turns a round's difference into its opposite, and leaves the times as measured.
    """
    numbers = np.random.default_rng(0)
    for name, each in measured.items():
        own = wrong([each], rounds)
        others = [wrong([each * numbers.choice([-1, 1], len(each))], rounds) for _ in range(times)]
        as_many = 100 * np.mean(np.array(others) >= own)
        print(f"| {name}, {rounds} rounds | {100 * own:.1f} % | {100 * np.mean(others):.1f} % | {as_many:.0f} % |")


def wrong(measured: Iterable[np.ndarray], rounds: int) -> float:
    """The fraction of the blocks that the default test calls better or worse."""
    better, worse = first_verdicts(SYMMETRIC, *all_blocks(measured, FLOOR_ROUNDS + rounds))
    return float(np.isfinite(np.minimum(better, worse)).mean())


def session(measured: dict[str, np.ndarray], rounds: int, changes: int = 200, sessions: int = 200) -> None:
    """How often a session of equal changes has any false keep, and any wrong verdict: their blocks in random order."""
    numbers = np.random.default_rng(0)
    differences, scale = all_blocks(measured.values(), FLOOR_ROUNDS + rounds)
    kept = called = 0
    for _ in range(sessions):
        chosen = numbers.choice(len(scale), changes, replace=False)
        ranks = np.arange(1, changes + 1)
        alpha = ALPHA / (ranks * (ranks + 1))
        better, worse = first_verdicts(SYMMETRIC, differences[chosen], scale[chosen], alpha)
        kept += (better < worse).any()
        called += np.isfinite(np.minimum(better, worse)).any()
    falsely, wrongly = 100 * kept / sessions, 100 * called / sessions
    print(f"{sessions} sessions of {changes}: {falsely:.1f} % with a false keep, {wrongly:.1f} % with a wrong verdict")


def main() -> None:
    """Print a table of Markdown."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--series", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--live", nargs="*", type=Path, metavar="judgement.json")
    parser.add_argument("--redraw", type=int, default=0, metavar="TIMES", help="the coins of the live series")
    parser.add_argument("--paired", action="store_true", help="runs of a round with the same seed")
    parser.add_argument("--session", action="store_true", help="sessions of 200 equal changes, of the live series")
    arguments = parser.parse_args()
    if arguments.redraw:
        print("| series | wrong | with other coins | of which as many or more |\n|---|---|---|---|")
        return redrawn(series(arguments.live or []), arguments.rounds, arguments.redraw)
    if arguments.session:
        return session(series(arguments.live or []), arguments.rounds)
    if arguments.paired:
        print("| rounds | different seeds | paired, correlation 0 | 0.5 | 0.7 | 0.9 | 0.99 |\n" + 7 * "|---" + "|")
        return paired(arguments.series, arguments.rounds)
    print("| rounds | symmetric: better / worse, rounds | mean | t-test at each look | best of 3 | mean of 5 |")
    print("|---|---|---|---|---|---|")
    if arguments.live is not None:
        return live(series(arguments.live), arguments.rounds)
    return drawn(arguments.series, arguments.rounds)


if __name__ == "__main__":
    main()
