"""Series of rounds with equal arms, measured as ``judge`` measures them: ``python -m tests.answers.judge.live FOLDER``.

Both arms are the same config. Rounds are run one after another, without a verdict, until the seconds are over; the
ledger in ``FOLDER/<kind>`` is what ``python -m tests.answers.judge.coverage --live`` reads. Called again, a series
continues.
"""

import argparse
import sys
import time
from dataclasses import asdict, replace
from pathlib import Path

from manyheads.runner.answers.judge.arms import compose_arms
from manyheads.runner.answers.judge.claims import pairs
from manyheads.runner.answers.judge.config_question import ConfigQuestion as Question
from manyheads.runner.answers.judge.judge import ConfigJudgement as Judgement
from manyheads.runner.answers.measure.arm_configs import tolerances_of
from manyheads.runner.answers.measure.rounds import new_draw
from manyheads.runner.answers.measure.rows import ROUND
from manyheads.runner.answers.measure.runs import Runs
from manyheads.runner.machine.process import handled_by, interrupt

COMMON = ("launcher=spawn", "launcher.threads_per_rank=1", "trainer.device=cpu", "data.num_workers=0")
SYNTHETIC = ("data=synthetic", "data.image_size=8", "data.train_samples=480", "data.val_samples=64")
KINDS = {
    "mlp": ("model=mlp", "data=digits"),
    "small_cnn": ("model=small_cnn", *SYNTHETIC, "data.batch_size=16", "model.width=4"),
    "ddp": ("model=mlp", "data=digits", "parallel=ddp", "launcher.nproc_per_node=2"),
}


def record(folder: Path, kind: str, seconds: float) -> int:
    """Run rounds for so many seconds; returns how many there are now."""
    folder.mkdir(parents=True, exist_ok=True)
    runs = Runs(folder.resolve())
    if not runs.ledger.exists():
        runs.ledger.create(asdict(equal_arms([*KINDS[kind], *COMMON])))
    judgement = Judgement(runs, Question.of(runs.ledger.question()), seconds)
    until = time.monotonic() + seconds
    with handled_by(interrupt):
        judgement.examine()
        while time.monotonic() < until:
            judgement.round(ROUND, judgement.count(ROUND))
    judgement.write(judgement.claims())
    return len(pairs(runs.ledger.rows(), ROUND))


def equal_arms(overrides: list[str]) -> Question:
    """The question whether a config is faster than itself."""
    arms = compose_arms(overrides, "trainer.log_every=11")
    arms = replace(arms, change=arms.base)
    base = dict(arms.base.written)
    return Question(
        overrides=overrides,
        change="nothing",
        on="speed",
        least=0.01,
        alpha=0.05,
        test="symmetric",
        tolerances=tolerances_of(arms.base, arms.base),
        code=arms.code(),
        draw=new_draw(),
        base=base,
        changed=base,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seconds", type=float, default=150.0, help="for each kind")
    parser.add_argument("--kind", action="append", choices=[*KINDS])
    arguments = parser.parse_args()
    for kind in arguments.kind or KINDS:
        began = time.monotonic()
        count = record(arguments.folder / kind, kind, arguments.seconds)
        print(f"{kind}: {count} rounds, {time.monotonic() - began:.0f} s", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
