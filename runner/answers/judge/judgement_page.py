"""judgement.html: a judgement as one self-contained page, which needs neither network nor server."""

import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

from manyheads.runner.answers.judge.answer import sentences, shown, verdict_line
from manyheads.runner.answers.judge.claims import Claims, pairs
from manyheads.runner.answers.judge.judgement_charts import gain, judgement_charts
from manyheads.runner.answers.judge.question import Question
from manyheads.runner.answers.judge.terms import FOUND, Aim
from manyheads.runner.answers.measure.pace_task import BATCH_STATISTICS
from manyheads.runner.answers.measure.rows import (
    BASE,
    CHANGE,
    COMPLETED,
    EXACT,
    FACTS,
    FLOOR,
    ROUND,
    STATES,
    STEPS,
    TRIAL,
    RunRow,
)
from manyheads.runner.charts.html_page import html_page
from manyheads.runner.machine import invocation
from manyheads.runner.records.values import text_of

TEMPLATE = Path(__file__).with_name("judgement.html.j2")
PURPOSES = {  # in words
    FACTS: "to examine samples and dtypes",
    STEPS: "to compare steps",
    EXACT: "to compare steps in double precision",
    TRIAL: "to see how long updates take",
    FLOOR: "of base against base",
    ROUND: "of rounds",
}
COMPUTED = {  # findings of FACTS, in words
    "per_epoch": "updates per epoch",
    "samples_per_update": "samples of an update",
    "order": "samples and their order",
    "train": "training samples",
    "val": "validation samples",
    "evaluated": "evaluated samples",
    "overlap": "evaluated samples that are trained on",
    "dtypes": "products by dtype",
    "matmul": "precision of float32 products",
    BATCH_STATISTICS: "BatchNorm over each rank's share",
}


def as_page(question: Question, rows: Sequence[RunRow], claims: Claims, faults: Sequence[str]) -> str:
    """The page as HTML. ``faults``: what the audit found."""
    return html_page(
        TEMPLATE,
        heading=question.heading,
        kind="judgement",
        headline=verdict_line(question, claims),
        facts=_facts(question, rows),
        sentences=[*sentences(question, claims)],
        charts=judgement_charts(question, rows, claims),
        titles=_titles(question),
        rounds=[*_rounds(rows, claims)],
        keys=[[key, *map(_text, values)] for key, values in question.differences().items()],
        files=question.changed_files(),
        faults=faults,
        runs=len(rows),
        ledger=_ledger(rows),
        facts_found=[*_computed(rows)],
        data={},
    )


def _facts(question: Question, rows: Sequence[RunRow]) -> dict[str, str]:
    times = [time.strftime("%Y-%m-%d %H:%M", time.localtime(row.began)) for row in (rows[0], rows[-1])] if rows else []
    return {
        "command": invocation.command("judge", *question.arguments()),
        "date": " to ".join(dict.fromkeys(times)),
        "error rate": f"{100 * question.alpha:g} %",
        "test": question.test,
        "draw": question.draw,
    }


def _ledger(rows: Sequence[RunRow]) -> str:
    """The number of runs, by purpose and by how they ended."""
    started = Counter(row.purpose for row in rows)
    ended = Counter(row.state for row in rows)
    purposes = ", ".join(f"{started[purpose]} {words}" for purpose, words in PURPOSES.items() if started[purpose])
    states = ", ".join(f"{ended[state]} {state}" for state in STATES if ended[state])
    return f"The ledger counts {len(rows)} runs: {purposes}. Of them, {states}."


def _titles(question: Question) -> list[str]:
    titles = ["round", "first"]
    for aim in question.aims:
        titles += [f"{arm}: {'ms per update' if aim.is_speed else aim.text}" for arm in (BASE, CHANGE)] + [gain(aim)]
    return titles


def _rounds(rows: Sequence[RunRow], claims: Claims) -> Iterator[tuple[list[str], list[tuple[int, str]]]]:
    """A row of the table for each round: its cells, and its runs with links. First the rounds of base against base."""
    for purpose, name in ((FLOOR, "base against base {}"), (ROUND, "{}")):
        for number, pair in enumerate(pairs(rows, purpose)):
            cells = [name.format(number + 1), pair.in_order[0].arm]
            for effect in claims.effects:
                aim = Aim(effect.on)
                differences = effect.floor if purpose == FLOOR else effect.differences
                cells += [_value(aim, row) for row in (pair.base, pair.change)]
                cells.append(f"{shown(aim, differences[number]):.3g}")
            yield cells, [(row.number, f"{quote(row.folder)}/") for row in pair.in_order]


def _value(aim: Aim, row: RunRow) -> str:
    if row.state != COMPLETED:
        return row.state
    findings = row.findings
    return f"{1000 * findings['seconds'] / findings['updates'] if aim.is_speed else findings[FOUND][aim.text]:.4g}"


def _computed(rows: Sequence[RunRow]) -> Iterator[list[str]]:
    facts = {row.arm: row.findings for row in rows if row.purpose == FACTS and row.state == COMPLETED}
    if facts.keys() == {BASE, CHANGE}:
        for key, words in COMPUTED.items():
            yield [words, *(_fact(facts[arm].get(key)) for arm in (BASE, CHANGE))]


def _fact(value: Any) -> str:
    """A fact as text: the beginning of a digest; of a list, each value and how often it occurs."""
    if isinstance(value, list):
        value = Counter(value)
        return ", ".join(f"{element} ({times} times)" for element, times in value.items())
    if isinstance(value, Mapping):
        return ", ".join(f"{key}: {element}" for key, element in value.items())
    return _text(value)[:16]


def _text(value: Any) -> str:
    return "null" if value is None else text_of(value)
