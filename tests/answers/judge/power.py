"""How many rounds and seconds known gains take: ``python -m tests.answers.judge.power FOLDER``, on a quiet machine.

A gain is a pause that the change shortens in the model of tests/answers/measure/arms.py. How long an update takes is
measured first, and the pauses follow from that.
"""

import argparse
import math
import time
from dataclasses import asdict
from pathlib import Path
from statistics import median

import manyheads
from manyheads.runner.answers.judge.claims import pairs
from manyheads.runner.answers.judge.judge import ConfigJudgement as Judgement
from manyheads.runner.answers.measure.rows import FLOOR
from manyheads.runner.answers.measure.runs import Runs
from tests.answers.judge.live import COMMON, equal_arms

ARMS = Path(__file__).parents[1] / "measure" / "arms.py"
BASE = [f"model={ARMS}:Net", f"data={ARMS}:Samples", *COMMON]
GAINS = (0.5, 0.1, 0.03, 0.01)  # of an update that mostly pauses
PAUSE = 0.01  # seconds
TINY = 0.1  # of an update that does nothing but compute


def update(folder: Path, pause: float) -> float:
    """Seconds of an update, as a judgement measures it."""
    folder.mkdir(parents=True)
    runs, question = Runs(folder.resolve()), equal_arms([*BASE, f"+model.pause={pause}"])
    runs.ledger.create(asdict(question))
    judgement = Judgement(runs, question, math.inf)
    judgement.examine()
    for number in range(3):
        judgement.round(FLOOR, number)
    of_both = [row for pair in pairs(runs.ledger.rows(), FLOOR) for row in (pair.base, pair.change)]
    return median(row.findings["seconds"] / row.findings["updates"] for row in of_both)


def oversleep() -> float:
    """Seconds by which the shortest pause is longer than asked for."""
    found = []
    for _ in range(200):
        began = time.perf_counter()
        time.sleep(1e-6)
        found.append(time.perf_counter() - began)
    return median(found)


def judged(folder: Path, name: str, pauses: tuple[float, float], budget: str) -> None:
    """A line of the table."""
    began, words = time.monotonic(), [*BASE, f"+model.pause={pauses[0]:.6f}", f"hydra.sweep.dir={folder.resolve()}"]
    found = manyheads.judge(words, change=f"model.pause={pauses[1]:.6f}", least=0.002, budget=budget)
    low, high = (math.nan if each is None else -100 * math.expm1(-each) for each in (found.low, found.high))
    rounds = len(found.claims["effects"][0]["differences"]) if found.claims["effects"] else 0
    took = time.monotonic() - began
    print(f"| {name} | {found.verdict} | {low:.1f} to {high:.1f} % | {rounds} | {took:.0f} s |", flush=True)


def main() -> None:
    """Print a table of Markdown."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--budget", default="8m", help="for each gain")
    parser.add_argument("--tiny", action="store_true", help="only the gain of an update without other pauses")
    arguments = parser.parse_args()
    print("| gain | verdict | interval | rounds | time |\n|---|---|---|---|---|")
    quick = update(arguments.folder / "quick", 0.0)
    pause = max(quick * TINY / (1 - TINY) - oversleep(), 1e-6)
    name = f"{100 * TINY:g} % of an update of {1000 * quick:.2f} ms"
    judged(arguments.folder / "tiny", name, (pause, 0.0), "60s")
    if not arguments.tiny:
        slow = update(arguments.folder / "slow", PAUSE)
        for gain in GAINS:
            name = f"{100 * gain:g} % of an update of {1000 * slow:.2f} ms"
            judged(arguments.folder / f"{gain}", name, (PAUSE, PAUSE - gain * slow), arguments.budget)


if __name__ == "__main__":
    main()
