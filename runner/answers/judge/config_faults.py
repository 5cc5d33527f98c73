"""Inconsistencies within a judgement of configs: of its runs' configs, seeds and clocks."""

import math
from collections.abc import Iterator, Mapping, Sequence
from statistics import median
from typing import TYPE_CHECKING

from manyheads.runner.answers.judge.question import FLOOR_ROUNDS
from manyheads.runner.answers.judge.terms import FOUND, SIGNS, UNREACHED
from manyheads.runner.answers.measure.arm_configs import TRIAL_UPDATES
from manyheads.runner.answers.measure.rounds import RELATIVE_SLACK, clocks_agree, updates_of
from manyheads.runner.answers.measure.rows import COMPLETED, FACTS, FLOOR, ROUND, STEPS, TRIAL, RunRow
from manyheads.runner.answers.measure.runs import config_digest
from manyheads.runner.records.claims import repeated_seeds

if TYPE_CHECKING:
    from manyheads.runner.answers.judge.config_question import ConfigQuestion

TYPICAL_SLACK = 0.01  # seconds by which a rank's clock and the file system's may typically differ


def config_faults(question: "ConfigQuestion", rows: Sequence[RunRow]) -> Iterator[str]:
    """Sentences on runs with another config, seed or time than they may have."""
    if not question.is_about_speed:
        measured = [
            row.seed
            for row in rows
            if row.purpose in (FLOOR, ROUND)
            and row.state == COMPLETED
            and not (question.shares_seed(row.purpose) and row.place)
        ]
        yield from repeated_seeds(measured, where="rounds")
    yield from _of_configs(question, rows)
    yield from _of_clocks(question, rows)


def _of_configs(question: "ConfigQuestion", rows: Sequence[RunRow]) -> Iterator[str]:
    """Runs whose config is not the one of their arm."""
    per_epoch = {row.arm: row.findings["per_epoch"] for row in rows if row.purpose == FACTS and row.state == COMPLETED}
    for row in rows:
        timed = question.is_about_speed and row.purpose in (FLOOR, ROUND)
        updates = updates_of(rows) if timed else TRIAL_UPDATES if row.purpose == TRIAL else 0
        config = question.config(
            row.purpose,
            row.arm,
            round=row.round,
            turn=row.place,
            updates=updates,
            per_epoch=per_epoch.get(row.arm, 1),
        )
        if row.signature != config_digest(config):
            yield f"run {row.number} does not have the config of {row.arm}"
        if row.seed != config.get("seed"):
            yield f"run {row.number} has the seed {row.seed}, but the question and its draw give {config.get('seed')}"
        if timed and row.state == COMPLETED and row.findings["updates"] != updates:
            yield f"run {row.number} timed {row.findings['updates']} updates, the others {updates}"
        if row.purpose == STEPS and row.state == COMPLETED and "steps" not in row.findings:
            yield f"run {row.number} compared no steps"


def _of_clocks(question: "ConfigQuestion", rows: Sequence[RunRow]) -> Iterator[str]:
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
        if not clocks_agree(seconds, marked):
            yield f"run {row.number} measured {seconds:.3f} s, but the file system's clock {marked} s"
            continue
        apart.setdefault((row.purpose, row.arm), []).append(seconds - marked)
        if seconds > row.ended - row.began:
            yield f"run {row.number} measured {seconds:.3f} s, but took {row.ended - row.began:.3f} s in all"
    for (_, arm), between in apart.items():
        if len(between) >= FLOOR_ROUNDS and abs(median(between)) > TYPICAL_SLACK:
            yield f"runs of {arm} typically measured {1000 * median(between):.0f} ms more than the file system's clock"


def _of_training(question: "ConfigQuestion", row: RunRow, signs: Mapping[str, int]) -> Iterator[str]:
    """Contradictory times of a training. ``signs``: the first run's."""
    seconds = row.findings["train_seconds"]
    if row.ended is None or not 0 <= seconds <= row.ended - row.began:
        yield f"run {row.number} trained for {seconds:.1f} s, but took less in all"
    if row.findings[SIGNS] != signs:
        yield f"run {row.number} and the first run disagree on which metrics should be low"
    for aim in question.aims:
        most = (UNREACHED if aim.target is not None else 1.0) * seconds * (1 + RELATIVE_SLACK)
        if aim.is_relative and not 0 < row.findings[FOUND][aim.text] <= most:
            yield f"run {row.number}: the {aim.text} exceed the time that it trained"
