"""How often each way to judge is wrong, and how many rounds it takes: ``python -m tests.judge.coverage``.

Series are drawn from known distributions, or cut from rounds of equal arms that a real judgement measured (``--live
judgement.json ...``), looked at after each round.
"""

import argparse
import json
import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
from scipy import stats

from manyheads.runner.judge.audit import read
from manyheads.runner.judge.rounds import pairs
from manyheads.runner.judge.rows import ROUND
from manyheads.runner.judge.sequential import MEAN, SYMMETRIC, Test, spread

ALPHA, FLOOR_ROUNDS = 0.05, 5
Draw = Callable[[np.random.Generator, int, int], np.ndarray]


def first_verdicts(test: Test, differences: np.ndarray, scale: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """By series, after how many rounds it is better and worse; inf for never. ``differences``: (series, rounds)."""
    scaled = differences / scale[:, None]
    found = []
    for sign in (1, -1):
        logs = np.cumsum(test.log_bets(sign * scaled), axis=1)
        evidence = np.logaddexp.reduce(logs, axis=2) - math.log(logs.shape[2])
        found.append(_first(evidence >= math.log(2 / ALPHA)))
    return found[0], found[1]


def _first(hits: np.ndarray) -> np.ndarray:
    return np.where(hits.any(axis=1), hits.argmax(axis=1) + 1, np.inf)


def t_test_at_each_look(differences: np.ndarray) -> np.ndarray:
    """By series, after how many rounds a two-sided t-test is significant, from the third on."""
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


def _ar(numbers: np.random.Generator, series: int, rounds: int) -> np.ndarray:
    found = numbers.normal(size=(series, rounds))
    for number in range(1, rounds):
        found[:, number] += 0.95 * found[:, number - 1]
    return found


def _stalls(numbers: np.random.Generator, *size: int) -> np.ndarray:
    return np.where(numbers.random(size) < 0.03, 8.0, 0.0)


def _lognormal(numbers: np.random.Generator, *size: int) -> np.ndarray:
    return (np.exp(0.5) - numbers.lognormal(0, 1, size)) / 2.16


def live(paths: list[Path], rounds: int) -> None:
    """The same of contiguous blocks of measured rounds of equal arms, each after its own rounds for the floor.

    Blocks begin at every round, so neighbours share most of theirs; coins are those that were drawn. ``blocks`` counts
    them, ``apart`` those that share nothing.
    """
    every: list[tuple[np.ndarray, np.ndarray]] = []
    length = FLOOR_ROUNDS + rounds
    for path in paths:
        measured = measured_differences(path)
        if len(measured) < length:
            print(f"| {path.parent}: only {len(measured)} rounds | | | | | |")
            continue
        every.append(blocks(measured, length))
        count = f"{len(every[-1][1])} blocks, {len(measured) // length} apart"
        show(f"{path.parent.parent.name} {path.parent.name}, {rounds} rounds: {count}", *every[-1])
    if every:
        differences, scale = (np.concatenate(each) for each in zip(*every, strict=True))
        show(f"all, {rounds} rounds: {len(scale)} blocks", differences, scale)


def measured_differences(path: Path) -> np.ndarray:
    """By round, of a judgement's file."""
    question, rows = read(json.loads(path.read_text()))
    return np.array([pair.difference(question.aims[0]) for pair in pairs(rows, ROUND)])


def blocks(measured: np.ndarray, length: int) -> tuple[np.ndarray, np.ndarray]:
    """The rounds to judge of each block, and its scale."""
    found = np.stack([measured[start : start + length] for start in range(len(measured) - length + 1)])
    return found[:, FLOOR_ROUNDS:], scale_of(found[:, :FLOOR_ROUNDS])


def redrawn(paths: list[Path], rounds: int, times: int) -> None:
    """How often the default test is wrong in blocks of a series, with the coins as drawn and with others.

    For equal arms, another coin turns a round's difference into its opposite, and leaves the times as measured.
    """
    numbers = np.random.default_rng(0)
    for path in paths:
        measured = measured_differences(path)
        own = wrong(measured, rounds)
        others = [wrong(measured * numbers.choice([-1, 1], len(measured)), rounds) for _ in range(times)]
        as_many = 100 * np.mean(np.array(others) >= own)
        print(f"| {path.parent.name}, {rounds} rounds | {own:.1f} % | {np.mean(others):.1f} % | {as_many:.0f} % |")


def wrong(measured: np.ndarray, rounds: int) -> float:
    """Percent of the blocks that the default test calls better or worse."""
    better, worse = first_verdicts(SYMMETRIC, *blocks(measured, FLOOR_ROUNDS + rounds))
    return float(100 * np.isfinite(np.minimum(better, worse)).mean())


def main() -> None:
    """Print a table of Markdown."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--series", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--live", nargs="*", type=Path, metavar="judgement.json")
    parser.add_argument("--redraw", type=int, default=0, metavar="TIMES", help="the coins of the live series")
    arguments = parser.parse_args()
    if arguments.redraw:
        print("| series | wrong | with other coins | of which as many or more |\n|---|---|---|---|")
        return redrawn(arguments.live or [], arguments.rounds, arguments.redraw)
    print("| rounds | symmetric: better / worse, rounds | mean | t-test at each look | best of 3 | mean of 5 |")
    print("|---|---|---|---|---|---|")
    if arguments.live:
        return live(arguments.live, arguments.rounds)
    return drawn(arguments.series, arguments.rounds)


if __name__ == "__main__":
    main()
