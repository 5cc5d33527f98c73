"""Judgements of commands that were run live: ``python -m tests.answers.judge.command.live_commands FOLDER``.

Each is recorded as ``manyheads judge --command`` records it: a trial of both arms, the rounds of the noise floor, and
rounds, to the verdict for a planted gain, and always ROUNDS for equal arms. Its differences become a line of
``FOLDER/<kind>.jsonl``. Called again, a file continues. With ``--table``, how often they are wrong, and how soon right.
"""

import argparse
import json
import math
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median

import numpy as np

from manyheads.runner.answers.judge.claims import UNDECIDED, pairs
from manyheads.runner.answers.judge.command.arm_runs import ArmFiles, ArmRuns
from manyheads.runner.answers.judge.command.command_question import CommandQuestion
from manyheads.runner.answers.judge.command.command_terms import CommandTerms
from manyheads.runner.answers.judge.command.judge_command import CommandJudgement
from manyheads.runner.answers.judge.question import FLOOR_ROUNDS, MOST_ROUNDS
from manyheads.runner.answers.measure.rounds import new_draw
from manyheads.runner.answers.measure.rows import FLOOR, ROUND
from manyheads.runner.answers.measure.sequential import TESTS
from tests.answers.judge.coverage import ALPHA, first_verdicts, scale_of

SCRIPT = Path(__file__).with_name("regression.py")
SERIES = Path(__file__).with_name("series")  # what docs/judge-error-rates.md shows
ROUNDS = 20
CHANGES, SESSIONS = 100, 200
DEVIATION = 0.0635  # of the script's loss
TRAIN = f"{sys.executable} -S -I {SCRIPT.name} {{seed}}"
PAUSE = " {pause}"  # for a tenth of the command's seconds


@dataclass(frozen=True)
class Kind:
    """Two commands and the flags with which they are judged. ``is_equal``: whether neither is better."""

    base: str
    change: str
    on: str = "val_loss"
    test: str | None = None
    is_equal: bool = True

    @property
    def test_name(self) -> str:
        """A key of TESTS."""
        return self.test or ("symmetric" if self.on == "seconds" else "mean")


KINDS = {
    "seconds": Kind(f"{TRAIN} a 0 8", f"{TRAIN} a 0 8", on="seconds"),
    "loss": Kind(f"{TRAIN} a 0 0", f"{TRAIN} a 0 0"),
    "paired": Kind(f"{TRAIN} a 0 0", f"{TRAIN} b 0 0", test="paired"),
    "faster": Kind(f"{TRAIN} a 0 8{PAUSE}", f"{TRAIN} a 0 8", on="seconds", is_equal=False),
    "better": Kind(f"{TRAIN} a 0 0", f"{TRAIN} a {DEVIATION} 0", is_equal=False),
    "better-paired": Kind(f"{TRAIN} a 0 0", f"{TRAIN} b {DEVIATION} 0", test="paired", is_equal=False),
}


def judged(kind: Kind, scratch: Path, pause: float = 0.0) -> CommandJudgement:
    """A judgement of this kind, not begun. ``pause``: in seconds, for commands with a place for it."""
    files = scratch / "original"
    files.mkdir()
    (files / SCRIPT.name).write_bytes(SCRIPT.read_bytes())
    base, change = (line.replace("{pause}", f"{pause:.4f}") for line in (kind.base, kind.change))
    terms = CommandTerms(command=base, against=change, on=kind.on, test=kind.test)
    question = CommandQuestion(
        change=change,
        on=terms.on,
        least=terms.least_gain,
        alpha=terms.alpha,
        test=terms.name_of_test,
        draw=new_draw(),
        command=base,
        against=change,
        signs=terms.signs,
        within=".",
        code=["", ""],
        files=[],
        frozen=[],
        shared=[],
        **dict.fromkeys(("revision", "result", "evaluator", "same")),
    )
    runs = ArmRuns(scratch / "judged", question, ArmFiles(files, files, scratch, []))
    runs.folder.mkdir()
    runs.ledger.create(asdict(question))
    return CommandJudgement(runs, question, math.inf, 60.0)


def run(kind: Kind, judgement: CommandJudgement) -> dict[str, list[float]]:
    """Run it; its differences in the rounds of the noise floor and in the others."""
    judgement.examine()
    for number in range(FLOOR_ROUNDS):
        judgement.round(FLOOR, number)
    number = 0
    while number < ROUNDS if kind.is_equal else judgement.claims().verdict == UNDECIDED and number < MOST_ROUNDS:
        judgement.round(ROUND, number)
        number += 1
    rows, aim = judgement.runs.ledger.rows(), judgement.question.aims[0]
    return {
        purpose: [float(f"{pair.difference(aim):.4g}") for pair in pairs(rows, purpose)] for purpose in (FLOOR, ROUND)
    }


def seconds_of(kind: Kind) -> float:
    """How long the change's command takes."""
    with tempfile.TemporaryDirectory() as folder:
        judgement = judged(kind, Path(folder))
        judgement.examine()
        rows = [judgement.run(FLOOR, "change", 0, turn) for turn in range(9)]
        return median(row.findings["seconds"] for row in rows)


def record(path: Path, kind: Kind, count: int) -> None:
    """Append judgements until the file has ``count`` lines."""
    path.parent.mkdir(parents=True, exist_ok=True)
    pause = seconds_of(kind) / 9 if PAUSE in kind.base else 0.0
    for _ in range(count - len(path.read_text().splitlines() if path.exists() else [])):
        with tempfile.TemporaryDirectory() as folder:
            line = json.dumps(run(kind, judged(kind, Path(folder), pause)))
        with path.open("a") as file:
            file.write(line + "\n")


def show_equal(path: Path, kind: Kind) -> None:
    """A row on equal arms: of the judgements, and of contiguous blocks of their rounds, those kept and called worse.

    A block begins at every round. Its noise floor is that of the judgement in which it begins. A session has CHANGES
    blocks, drawn at random.
    """
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    scale = scale_of(np.array([line[FLOOR] for line in lines]))
    rounds = np.concatenate([line[ROUND] for line in lines])
    starts = np.arange(len(rounds) - ROUNDS + 1)
    blocks, scales = np.stack([rounds[start : start + ROUNDS] for start in starts]), scale[starts // ROUNDS]
    own = first_verdicts(TESTS[kind.test_name], np.array([line[ROUND] for line in lines]), scale)
    cut = first_verdicts(TESTS[kind.test_name], blocks, scales)
    numbers, ranks, kept = np.random.default_rng(0), np.arange(1, CHANGES + 1), 0
    for _ in range(SESSIONS):
        chosen = numbers.choice(len(starts), CHANGES, replace=False)
        better, worse = first_verdicts(
            TESTS[kind.test_name], blocks[chosen], scales[chosen], ALPHA / (ranks * (ranks + 1))
        )
        kept += bool((better < worse).any())
    cells = [
        f"{int((better < worse).sum())} / {int((worse < better).sum())} of {len(better)}"
        for better, worse in (own, cut)
    ]
    print(f"| {path.stem} | {' | '.join(cells)} | {kept} of {SESSIONS} |")


def show_gain(path: Path, kind: Kind) -> None:
    """A row on a planted gain: how often it was kept, and after how many rounds."""
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    scale = scale_of(np.array([line[FLOOR] for line in lines]))
    counts = []
    for number, line in enumerate(lines):
        (better,), (worse,) = first_verdicts(TESTS[kind.test_name], np.array([line[ROUND]]), scale[[number]])
        counts.append(better if better < worse else math.inf)
    counts.sort()
    kept, middle = sum(map(math.isfinite, counts)), counts[len(counts) // 2]
    print(f"| {path.stem} | {kept} of {len(counts)} | {middle:g} | {counts[math.ceil(0.9 * len(counts)) - 1]:g} |")


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, nargs="?", default=SERIES)
    parser.add_argument("--kind", action="append", choices=[*KINDS])
    parser.add_argument("--count", type=int, default=100, help="judgements of each kind")
    parser.add_argument("--table", action="store_true")
    asked = parser.parse_args(arguments)
    if asked.table:
        print(f"| equal | judgements | blocks | sessions of {CHANGES} with a false keep |\n|---|---|---|---|")
        for name, kind in KINDS.items():
            if kind.is_equal:
                show_equal(asked.folder / f"{name}.jsonl", kind)
        print("\n| gain | kept | rounds, median | of 90 % |\n|---|---|---|---|")
        for name, kind in KINDS.items():
            if not kind.is_equal:
                show_gain(asked.folder / f"{name}.jsonl", kind)
        return
    for name in asked.kind or KINDS:
        path = asked.folder / f"{name}.jsonl"
        began = time.monotonic()
        record(path, KINDS[name], asked.count)
        print(f"{name}: {asked.count} judgements, {time.monotonic() - began:.0f} s", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
