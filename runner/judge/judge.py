"""``manyheads judge``: ask, check, or ask somebody else's question again."""

import math
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from manyheads.launchers.parent_signals import interrupt
from manyheads.runner.config.fresh_folder import SWEEP_DIR, named_folder
from manyheads.runner.errors import ConfigurationError, not_allowed, printable
from manyheads.runner.judge.aims import SPEED, aims_of
from manyheads.runner.judge.answer import CheckedJudgement, Judged
from manyheads.runner.judge.arms import Arms, compose_arms
from manyheads.runner.judge.audit import faults, read
from manyheads.runner.judge.draw import new_draw
from manyheads.runner.judge.judgement import FILE, Judgement
from manyheads.runner.judge.question import Question
from manyheads.runner.judge.runs import Runs
from manyheads.runner.judge.session import Session
from manyheads.runner.machine import invocation
from manyheads.runner.machine.process import handled_by
from manyheads.runner.option.rules import seconds
from manyheads.runner.run import seal
from manyheads.runner.run.data_files import read_json
from manyheads.runner.run.files import exclusive, in_turn, make_folder

JUDGEMENTS = Path("outputs") / "judgements"
LOCK = ".asked"
MOST_SHOWN = 12
LEAST_GAIN = 0.01  # of the seconds per update


def judge(
    overrides: Sequence[str],
    *,
    change: str,
    on: str = SPEED,
    least: float | None = None,
    alpha: float = 0.05,
    test: str | None = None,
    session: Path | None = None,
    rate: bool = False,
    budget: str = "10m",
    config_dir: str | None = None,
) -> Judged:
    """Judge whether the change is better.

    ``overrides``: of base, as for train; ``on``: "speed", at the same numerics, a metric, or "seconds to metric=value";
    of several, separated by commas, the first is to get better and none worse; ``least``: the smallest gain worth
    having in the first, for seconds as a fraction; ``alpha``: the error rate; ``test``: of sequential.TESTS;
    ``session``: a file, over all of whose questions alpha is spent; ``rate``: it then bounds the fraction of false
    keeps; ``budget``: a duration.

    Asked again, the same question continues the same judgement. Raises ConfigurationError, what base fails with, and
    Interrupted.
    """
    aim = aims_of(on)[0]
    least = (LEAST_GAIN if aim.is_relative else 0.0) if least is None else least
    if not 0 < alpha < 1:
        raise not_allowed("--alpha", alpha, "a number between 0 and 1, such as 0.05")
    if not 0 <= least < (1 if aim.is_relative else math.inf):
        raise not_allowed("--least", least, "a number from 0; for speed a fraction")
    test = test or ("symmetric" if aim.is_speed else "mean")
    if (allowed := seconds(budget)) is None:
        raise not_allowed("--budget", budget, "seconds, or 90s, 30m, 8h, 2d")
    named = named_folder(overrides, SWEEP_DIR)
    words = [each for each in overrides if not each.startswith(SWEEP_DIR)]
    arms = compose_arms(words, change, config_dir=config_dir)
    question = _question(arms, words, change, on=on, least=least, alpha=alpha, test=test)
    folder = named or JUDGEMENTS / question.id
    make_folder(folder.resolve())
    runs = Runs(folder.resolve())
    spending = None if session is None else Session(session, is_rate=rate)
    with in_turn(folder.resolve() / LOCK):
        asked = Question.of(runs.ledger.question()) if runs.ledger.exists() else None
        if spending is not None:
            number, alpha = spending.ask(question.draw if asked is None else asked.draw, change, alpha)
            question = replace(question, alpha=alpha)
            _say(f"question {number} of the session {session}: its error rate is {alpha:.2g}")
        if asked is None:
            runs.ledger.create((asked := question).to_json())
    if asked.id != question.id:
        raise ConfigurationError(f"{folder} holds the judgement of another question. Name another folder.")
    _show_differences(arms)
    with exclusive(runs.ledger.path, of=folder), handled_by(interrupt):
        claims = Judgement(runs, asked, allowed, _say).decide()
    if spending is not None:
        spending.answer(asked.draw, claims.verdict)
    return Judged.of(runs.folder / FILE, asked, claims)


def check(path: Path) -> CheckedJudgement:
    """Whether a judgement's claims follow from its rows, and its rows fit together. Runs nothing."""
    try:
        content = read_json(path)
        question, rows = read(content)
        wrong = faults(content)
    except OSError as error:
        raise ConfigurationError(f"{path}: {error.strerror}.") from None
    except ConfigurationError as error:
        raise ConfigurationError(f"{path}: {error}") from None
    last = content["lines"][-1]["digest"]
    sealed = content.get("seal") is not None and content["seal"] == seal.keyed("judgement", last)
    again = invocation.command("judge", *question.overrides, "--change", question.change)
    return CheckedJudgement(path, len(rows), [*wrong], sealed, again)


def _question(
    arms: Arms, overrides: list[str], change: str, *, on: str, least: float, alpha: float, test: str
) -> Question:
    own = arms.base.precision.tolerance
    return Question(
        overrides=overrides,
        change=change,
        on=on,
        least=least,
        alpha=alpha,
        test=test,
        tolerances=[own, max(own, arms.change.precision.tolerance)],
        code=arms.code(),
        draw=new_draw(),
        base=dict(arms.base.written),
        changed=dict(arms.change.written),
    )


def _show_differences(arms: Arms) -> None:
    found = arms.differences()
    print("What differs:" if found else "The configs are the same.")
    for key, (one, other) in [*found.items()][:MOST_SHOWN]:
        print(printable(f"  {key}: {one} -> {other}"))
    if len(found) > MOST_SHOWN:
        print(f"  and {len(found) - MOST_SHOWN} more keys")


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
