"""Why two arms cannot be compared, in sentences: ``judge`` refuses to continue, and ``judge --check`` reports them."""

from collections.abc import Iterator, Sequence

from manyheads.runner.answers.judge.arms import config_differences
from manyheads.runner.answers.judge.numerics import (
    DIFFERENT,
    SAME_BITS,
    Numerics,
    class_of,
    exact_numerics,
    explained,
    unlike_facts,
)
from manyheads.runner.answers.judge.question import Question
from manyheads.runner.answers.judge.rows import BASE, CHANGE, COMPLETED, FACTS, FAILED, FLOOR, ROUND, STEPS, RunRow
from manyheads.runner.answers.judge.terms import FOUND, VERSIONS


def refusals(question: Question, rows: Sequence[RunRow]) -> tuple[str, ...]:
    """All reasons that the rows give so far."""
    completed = [row for row in rows if row.state == COMPLETED]
    found = [*_of_machines(completed)]
    facts = {row.arm: row.findings for row in completed if row.purpose == FACTS}
    if {BASE, CHANGE} <= facts.keys():
        differing = config_differences(question.base, question.changed)
        found += unlike_facts(facts[BASE], facts[CHANGE], differing, steps=question.is_about_speed)
        found += _of_data([row for row in completed if row.purpose == FACTS])
        asks_for_data = question.revision is not None or any(key.startswith("data.") for key in differing)
        if not question.is_about_speed and not asks_for_data and facts[CHANGE]["train"] != facts[BASE]["train"]:
            found.append(
                "the change trains on other samples than base, although it changes no key of data. (A data set with "
                "its own random generator must seed it.)"
            )
    found += _of_versions(question, completed)
    if question.is_about_speed:
        found += [*_of_steps(question, rows), *_of_pace(question, completed)]
    return tuple(found)


def _of_machines(completed: Sequence[RunRow]) -> Iterator[str]:
    """Runs whose code, versions or devices differ from those of earlier runs."""
    known: dict[str, RunRow] = {}
    for row in completed:
        first = known.setdefault(row.arm, row)
        if row.machine != completed[0].machine:
            yield f"run {row.number} differs in versions, devices or code from run {completed[0].number}"
        elif row.code != first.code:
            yield f"run {row.number} has other code than run {first.number}: a file was edited meanwhile"


def _of_versions(question: Question, completed: Sequence[RunRow]) -> Iterator[str]:
    """Runs that measured an aim by another definition than the first one did."""
    trained = [row for row in completed if FOUND in row.findings]
    for aim in question.aims:
        versions = [row.findings.get(VERSIONS, {}).get(aim.text, "1") for row in trained]
        for row, version in zip(trained, versions, strict=True):
            if version != versions[0]:
                yield (
                    f"{aim.text} has version {version} of its definition in run {row.number}, and version "
                    f"{versions[0]} in run {trained[0].number}"
                )
                break


def _of_data(facts: Sequence[RunRow]) -> Iterator[str]:
    """Runs that read other data than base's first, because the files changed before the judgement was continued.

    ``facts``: the FACTS runs of both arms, and base's of each time that it was continued. Only splits that are the same
    in both arms are compared: others may be drawn anew in each run.
    """
    base, change = (next(row for row in facts if row.arm == arm) for arm in (BASE, CHANGE))
    fixed = [split for split in ("train", "val") if base.findings[split] == change.findings[split]]
    for row in facts:
        if row.arm == BASE and any(row.findings[split] != base.findings[split] for split in fixed):
            yield f"run {row.number} reads other samples than run {base.number}: the data were changed meanwhile"


def _of_steps(question: Question, rows: Sequence[RunRow]) -> Iterator[str]:
    steps = [row for row in rows if row.purpose == STEPS and row.arm == CHANGE and row.state in (COMPLETED, FAILED)]
    if not steps:
        return
    tolerances, exact = explained(question, rows), exact_numerics(question, rows)
    if exact is not None and exact.name == DIFFERENT:
        yield _computes_other(exact, tolerances.exact, " in double precision")
        return
    for row in steps:
        if row.state == FAILED:
            yield f"the steps of the change cannot be compared with those of base: {row.reason}"
        elif (found := class_of(row.findings, tolerances, exact)).name == DIFFERENT:
            yield _computes_other(found, tolerances.asked)


def _computes_other(found: Numerics, allowed: float, where: str = "") -> str:
    return (
        f"the change computes different numbers{where}: after one step the {found.worst} differs by "
        f"{found.biggest:.2g} of its size, and rounding explains {allowed:.2g}"
    )


def _of_pace(question: Question, completed: Sequence[RunRow]) -> Iterator[str]:
    """Timed runs that took another number of samples or, with bit-identical steps, ended with other weights."""
    timed = [row for row in completed if row.purpose in (FLOOR, ROUND)]
    steps = next((row.findings for row in completed if row.purpose == STEPS and row.arm == CHANGE), None)
    is_exact = steps is not None and class_of(steps, explained(question, completed), None).name == SAME_BITS
    of_base = {row.findings["weights_sha256"] for row in timed if row.purpose == FLOOR}
    for row in timed:
        if row.findings["samples"] != timed[0].findings["samples"]:
            yield (
                f"run {row.number} took {row.findings['samples']} samples in its updates, run {timed[0].number} "
                f"{timed[0].findings['samples']}"
            )
        if is_exact and len(of_base) == 1 and row.findings["weights_sha256"] not in of_base:
            yield f"run {row.number} has other weights than base after its updates, although their first steps agree"
