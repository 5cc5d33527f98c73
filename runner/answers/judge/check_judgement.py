"""Checks a judgement, such as somebody else's, from its rows alone: offline, and without running what it names."""

import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from statistics import median
from typing import Any

from manyheads.runner.answers.judge.claims import REFUSED, claims_of
from manyheads.runner.answers.judge.question import FLOOR_ROUNDS, Question
from manyheads.runner.answers.judge.terms import FOUND, SIGNS, UNREACHED
from manyheads.runner.answers.measure.arm_configs import TRIAL_UPDATES
from manyheads.runner.answers.measure.rounds import is_base_first, updates_of
from manyheads.runner.answers.measure.rows import (
    BASE,
    CHANGE,
    COMPLETED,
    FACTS,
    FLOOR,
    PURPOSES,
    ROUND,
    STEPS,
    TRIAL,
    RunRow,
    broken,
    latest,
)
from manyheads.runner.answers.measure.runs import config_digest
from manyheads.runner.errors import ConfigurationError
from manyheads.runner.records.claims import differences_of, repeated_seeds

# How far a rank's clock and the file system's may differ: in seconds, plus a fraction of the measured time. In 2,500
# runs on two cores they differed by up to 81 ms at loads up to 14, and by at most 4 ms on an idle machine; the median
# was 0.4 ms at every load.
SLACK, TYPICAL_SLACK = 0.15, 0.01
RELATIVE = 0.02


def read(content: Any) -> tuple[Question, list[RunRow]]:
    """The question and the rows of a judgement. Raises ConfigurationError if ``content`` is not a judgement."""
    lines = content.get("lines") if isinstance(content, dict) else None
    if (
        not isinstance(lines, list)
        or not lines
        or not all(isinstance(line, dict) and isinstance(line.get("content"), dict) for line in lines)
    ):
        raise ConfigurationError("it is not a judgement: it has no rows.")
    question, rows = Question.of(lines[0]["content"]), latest(lines)
    if other := next((row for row in rows if row.purpose not in PURPOSES or row.arm not in (BASE, CHANGE)), None):
        raise ConfigurationError(f"it is not a judgement: run {other.number} has an unknown arm or purpose.")
    return question, rows


def faults(content: Mapping[str, Any]) -> list[str]:
    """All inconsistencies within a judgement, as sentences. Raises ConfigurationError if it cannot be read."""
    question, rows = read(content)
    wrong = [f"the ledger: {reason}"] if (reason := broken(content["lines"])) else []
    try:
        wrong += [
            *_of_rows(rows),
            *_of_order(question, rows),
            *_of_configs(question, rows),
            *_of_clocks(question, rows),
        ]
        claims = claims_of(question, rows)
    except (TypeError, ValueError, AttributeError, ArithmeticError, LookupError, StopIteration):
        raise ConfigurationError("it is not a judgement: a value of a run is missing, or has another type.") from None
    claimed = content.get("claims")
    if claims.verdict == REFUSED and not (isinstance(claimed, dict) and claimed.get("verdict") == REFUSED):
        wrong += claims.reasons
    return [*wrong, *differences_of(claims.to_json(), claimed)]


def _of_rows(rows: Sequence[RunRow]) -> Iterator[str]:
    """Missing or overlapping runs."""
    for expected, row in enumerate(rows):
        if row.number != expected:
            yield f"run {expected} is missing: the next is run {row.number}"
            break
    for one, other in pairwise(rows):
        if one.ended is not None and other.began < one.ended:
            yield f"run {other.number} began before run {one.number} had ended"


def _of_order(question: Question, rows: Sequence[RunRow]) -> Iterator[str]:
    """Rounds that are incomplete, or not in the order of the recorded draw, and repeated seeds."""
    rounds: dict[int, dict[int, RunRow]] = {}
    for row in rows:
        if row.purpose == ROUND:
            first = BASE if is_base_first(question.draw, ROUND, row.round) else CHANGE
            if (row.arm == first) != (row.place == 0):
                yield f"run {row.number}: by the recorded draw, {first} runs first in round {row.round + 1}"
            rounds.setdefault(row.round, {})[row.place] = row
    seeds = [row.seed for row in rows if row.purpose in (FLOOR, ROUND) and row.state == COMPLETED]
    if not question.is_about_speed:
        yield from repeated_seeds(seeds, where="rounds")
    last = max(rounds, default=-1)
    incomplete = next((number for number in range(last) if rounds.get(number, {}).keys() != {0, 1}), None)
    if incomplete is not None:
        yield f"round {incomplete + 1} is incomplete, and later ones were run"


def _of_configs(question: Question, rows: Sequence[RunRow]) -> Iterator[str]:
    """Runs whose config is not the one of their arm."""
    per_epoch = {row.arm: row.findings["per_epoch"] for row in rows if row.purpose == FACTS and row.state == COMPLETED}
    for row in rows:
        timed = question.is_about_speed and row.purpose in (FLOOR, ROUND)
        updates = updates_of(rows) if timed else TRIAL_UPDATES if row.purpose == TRIAL else 0
        where = {"round": row.round, "turn": row.place}
        config = question.config(row.purpose, row.arm, **where, updates=updates, per_epoch=per_epoch.get(row.arm, 1))
        if row.signature != config_digest(config):
            yield f"run {row.number} does not have the config of {row.arm}"
        if row.seed != config.get("seed"):
            yield f"run {row.number} has the seed {row.seed}, but the question and its draw give {config.get('seed')}"
        if timed and row.state == COMPLETED and row.findings["updates"] != updates:
            yield f"run {row.number} timed {row.findings['updates']} updates, the others {updates}"
        if row.purpose == STEPS and row.state == COMPLETED and "steps" not in row.findings:
            yield f"run {row.number} compared no steps"


def _of_clocks(question: Question, rows: Sequence[RunRow]) -> Iterator[str]:
    """Times that contradict each other."""
    timed = [row for row in rows if row.state == COMPLETED and row.purpose in (TRIAL, FLOOR, ROUND)]
    apart: dict[tuple[str, str], list[float]] = {}
    for row in timed:
        if not question.is_about_speed:
            yield from _of_training(question, row, timed[0].findings[SIGNS])
            continue
        seconds, marked, updates = (row.findings[key] for key in ("seconds", "marked", "updates"))
        if not 0 < seconds < math.inf or not updates > 0 or row.ended is None:
            yield f"run {row.number} has no time"
            continue
        if marked is None or abs(seconds - marked) > SLACK + RELATIVE * seconds:
            yield f"run {row.number} measured {seconds:.3f} s, but the file system's clock {marked} s"
            continue
        apart.setdefault((row.purpose, row.arm), []).append(seconds - marked)
        if seconds > row.ended - row.began:
            yield f"run {row.number} measured {seconds:.3f} s, but took {row.ended - row.began:.3f} s in all"
    for (_, arm), between in apart.items():
        if len(between) >= FLOOR_ROUNDS and abs(median(between)) > TYPICAL_SLACK:
            yield f"runs of {arm} typically measured {1000 * median(between):.0f} ms more than the file system's clock"


def _of_training(question: Question, row: RunRow, signs: Mapping[str, int]) -> Iterator[str]:
    """Contradictory times of a training. ``signs``: the first run's."""
    seconds = row.findings["train_seconds"]
    if row.ended is None or not 0 <= seconds <= row.ended - row.began:
        yield f"run {row.number} trained for {seconds:.1f} s, but took less in all"
    if row.findings[SIGNS] != signs:
        yield f"run {row.number} and the first run disagree on which metrics should be low"
    for aim in question.aims:
        most = (UNREACHED if aim.target is not None else 1.0) * seconds * (1 + RELATIVE)
        if aim.is_relative and not 0 < row.findings[FOUND][aim.text] <= most:
            yield f"run {row.number}: the {aim.text} exceed the time that it trained"
