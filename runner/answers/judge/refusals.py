"""Why two arms cannot be compared, in sentences: ``judge`` refuses to continue, and ``judge --check`` reports them."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from manyheads.runner.answers.judge.terms import FOUND, VERSIONS
from manyheads.runner.answers.measure.evidence import Evidence
from manyheads.runner.answers.measure.numerics import SAME_BITS, class_of
from manyheads.runner.answers.measure.rows import BASE, CHANGE, COMPLETED, FLOOR, ROUND, STEPS, RunRow

if TYPE_CHECKING:
    from manyheads.runner.answers.judge.config_question import ConfigQuestion


def evidence_of(question: "ConfigQuestion", rows: Sequence[RunRow]) -> Evidence:
    """The evidence on both arms in the ledger's rows."""
    return Evidence(question.configs, rows, needs_same_steps=question.is_about_speed)


def refusals(question: "ConfigQuestion", rows: Sequence[RunRow]) -> tuple[str, ...]:
    """All reasons that the rows give so far."""
    evidence = evidence_of(question, rows)
    more = _of_pace(evidence) if question.is_about_speed else (*_of_samples(evidence), *_of_versions(question, rows))
    return (*evidence.refusals(), *more)


def _of_samples(evidence: Evidence) -> Iterator[str]:
    """Other training samples, although the change asks for no other data."""
    facts, configs = evidence.facts(), evidence.configs
    if not {BASE, CHANGE} <= facts.keys() or facts[CHANGE]["train"] == facts[BASE]["train"]:
        return
    if not configs.changes_code and not any(key.startswith("data.") for key in configs.differences()):
        yield (
            "the change trains on other samples than base, although it changes no key of data. (A data set with "
            "its own random generator must seed it.)"
        )


def _of_versions(question: "ConfigQuestion", rows: Sequence[RunRow]) -> Iterator[str]:
    """Runs that measured an aim by another definition than the first one did."""
    trained = [row for row in rows if row.state == COMPLETED and FOUND in row.findings]
    for aim in question.aims:
        versions = [row.findings.get(VERSIONS, {}).get(aim.text, "1") for row in trained]
        for row, version in zip(trained, versions, strict=True):
            if version != versions[0]:
                yield (
                    f"{aim.text} has version {version} of its definition in run {row.number}, and version "
                    f"{versions[0]} in run {trained[0].number}"
                )
                break


def _of_pace(evidence: Evidence) -> Iterator[str]:
    """Timed runs that took another number of samples or, with bit-identical steps, ended with other weights."""
    floor, steps = evidence.completed(FLOOR), evidence.completed(STEPS, CHANGE)
    timed = sorted([*floor, *evidence.completed(ROUND)], key=lambda row: row.number)
    is_exact = bool(steps) and class_of(steps[0].findings, evidence.tolerances, None).name == SAME_BITS
    of_base = {row.findings["weights_sha256"] for row in floor}
    for row in timed:
        if row.findings["samples"] != timed[0].findings["samples"]:
            yield (
                f"run {row.number} took {row.findings['samples']} samples in its updates, run {timed[0].number} "
                f"{timed[0].findings['samples']}"
            )
        if is_exact and len(of_base) == 1 and row.findings["weights_sha256"] not in of_base:
            yield f"run {row.number} has other weights than base after its updates, although their first steps agree"
