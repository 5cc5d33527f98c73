"""Why two arms cannot be compared, in sentences: what ``judge`` refuses, and what ``judge --check`` finds."""

from collections.abc import Iterator, Sequence

from manyheads.runner.judge.arms import config_differences
from manyheads.runner.judge.numerics import DIFFERENT, SAME_BITS, class_of, exact_difference, explained, unlike_facts
from manyheads.runner.judge.question import Question
from manyheads.runner.judge.rows import BASE, CHANGE, COMPLETED, EXACT, FACTS, FAILED, FLOOR, ROUND, STEPS, Row


def refusals(question: Question, rows: Sequence[Row]) -> tuple[str, ...]:
    """All reasons, as far as the rows tell."""
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
                "the change trains on other samples than base, although it changes no key of data. (A data set with a "
                "random generator of its own has to seed it.)"
            )
    if question.is_about_speed:
        found += [*_of_steps(question, rows), *_of_pace(question, completed)]
    return tuple(found)


def _of_machines(completed: Sequence[Row]) -> Iterator[str]:
    """Runs by other code, by other versions, or on other devices than those before."""
    known: dict[str, Row] = {}
    for row in completed:
        first = known.setdefault(row.arm, row)
        if row.machine != completed[0].machine:
            yield f"run {row.number} differs in versions, devices or code from run {completed[0].number}"
        elif row.code != first.code:
            yield f"run {row.number} has other code than run {first.number}: a file was edited meanwhile"


def _of_data(facts: Sequence[Row]) -> Iterator[str]:
    """Samples of base that differ when a judgement is continued; ``facts``: of both arms, and of base again.

    Only of splits that are the same in both arms: others may be drawn again each time.
    """
    base, change = (next(row for row in facts if row.arm == arm) for arm in (BASE, CHANGE))
    fixed = [split for split in ("train", "val") if base.findings[split] == change.findings[split]]
    for row in facts:
        if row.arm == BASE and any(row.findings[split] != base.findings[split] for split in fixed):
            yield f"run {row.number} reads other samples than run {base.number}: the data were changed meanwhile"


def _of_steps(question: Question, rows: Sequence[Row]) -> Iterator[str]:
    tolerances = explained(question, rows)
    for row in rows:
        if row.purpose not in (STEPS, EXACT) or row.arm != CHANGE or row.state not in (COMPLETED, FAILED):
            continue
        if row.state == FAILED:
            if row.purpose == STEPS:
                yield f"the steps of the change cannot be compared with those of base: {row.reason}"
            continue
        is_own = row.purpose == STEPS
        allowed = tolerances.asked if is_own else tolerances.exact
        found = (class_of if is_own else exact_difference)(row.findings, tolerances)
        if found is not None and found.name == DIFFERENT:
            precision = "" if is_own else " in double precision"
            yield (
                f"the change computes different numbers{precision}: after one step the {found.worst} differs by "
                f"{found.biggest:.2g} of its size, and rounding explains {allowed:.2g}"
            )


def _of_pace(question: Question, completed: Sequence[Row]) -> Iterator[str]:
    """What the timed runs themselves say: as many samples in each; and the same weights, if the steps are the same."""
    timed = [row for row in completed if row.purpose in (FLOOR, ROUND)]
    steps = next((row.findings for row in completed if row.purpose == STEPS and row.arm == CHANGE), None)
    is_exact = steps is not None and class_of(steps, explained(question, completed)).name == SAME_BITS
    of_base = {row.findings["weights_sha256"] for row in timed if row.purpose == FLOOR}
    for row in timed:
        if row.findings["samples"] != timed[0].findings["samples"]:
            yield (
                f"run {row.number} took {row.findings['samples']} samples in its updates, run {timed[0].number} "
                f"{timed[0].findings['samples']}"
            )
        if is_exact and len(of_base) == 1 and row.findings["weights_sha256"] not in of_base:
            yield f"run {row.number} has other weights than base after its updates, although their first steps agree"
