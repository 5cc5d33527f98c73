"""Whether two arms can be compared, by their runs: a pure function of their ledger's rows."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from manyheads.runner.answers.measure.arm_configs import ArmConfigs
from manyheads.runner.answers.measure.numerics import DIFFERENT, EQUAL, Numerics, Tolerances, class_of, unlike_facts
from manyheads.runner.answers.measure.pace_task import BATCH_STATISTICS
from manyheads.runner.answers.measure.rows import (
    BASE,
    CHANGE,
    COMPLETED,
    EXACT,
    FACTS,
    FAILED,
    ROUND,
    STEPS,
    RunRow,
    why_change_failed,
)
from manyheads.runner.precision.fp64 import FP64Option


@dataclass(frozen=True)
class Evidence:
    """``rows``: the runs of both arms, in the order of their start. ``change``: the name of the changed arm in them.

    ``needs_same_steps``: whether both arms have to take the same steps, as for speed.
    """

    configs: ArmConfigs
    rows: Sequence[RunRow]
    change: str = CHANGE
    needs_same_steps: bool = True

    def completed(self, purpose: str, arm: str | None = None) -> list[RunRow]:
        """The completed runs with this purpose, of one arm or of both."""
        return [
            row for row in self.rows if row.state == COMPLETED and row.purpose == purpose and arm in (None, row.arm)
        ]

    def facts(self) -> dict[str, Mapping[str, Any]]:
        """The latest facts by arm."""
        return {row.arm: row.findings for row in self.completed(FACTS)}

    # -- numerics ------------------------------------------------------------------------------------

    @property
    def tolerances(self) -> Tolerances:
        """The differences that are explained; BatchNorm's only if an arm has BatchNorm over each rank's own samples."""
        rounding, asked, of_shares = self.configs.tolerances
        if not any(row.findings[BATCH_STATISTICS] for row in self.completed(FACTS)):
            of_shares = 0.0
        return Tolerances(rounding, max(asked, of_shares), max(FP64Option.tolerance, of_shares))

    @property
    def numerics(self) -> Numerics | None:
        """The class from the compared steps in the arms' own precision; None if they have not been taken."""
        steps = next(iter(self.completed(STEPS, self.change)), None)
        return None if steps is None else class_of(steps.findings, self.tolerances, self.exact)

    @property
    def exact(self) -> Numerics | None:
        """The class from steps in double precision; EQUAL before they are taken, and if they need not be.

        None if they say nothing: they failed or were left out, or a model casts to a lower precision itself, whose
        rounding explains any difference.
        """
        if self.configs.changes_only_precision:
            return EQUAL
        if taken := self.completed(EXACT, self.change):
            limit, findings = self.tolerances.exact, taken[0].findings
            return None if findings["casts"] else class_of(findings, Tolerances(limit, limit, limit), None)
        steps = max((row.number for row in self.rows if row.purpose == STEPS), default=0)
        is_over = any(row.purpose == ROUND and row.arm == self.change and row.number > steps for row in self.rows)
        has_failed = any(row.purpose == EXACT and row.state == FAILED for row in self.rows)
        return None if is_over or has_failed else EQUAL

    # -- why the arms cannot be compared -------------------------------------------------------------

    @property
    def failure(self) -> str | None:
        """Why the change failed in its first run; failures of its steps are among the refusals."""
        return why_change_failed(self.rows, FACTS, self.change)

    def refusals(self) -> tuple[str, ...]:
        """All reasons that the rows give so far, in sentences."""
        return (*self._of_machines(), *self._of_facts(), *(self._of_steps() if self.needs_same_steps else ()))

    def _of_machines(self) -> Iterator[str]:
        """Runs whose code, versions or devices differ from those of earlier runs."""
        completed = [row for row in self.rows if row.state == COMPLETED]
        firsts: dict[str, RunRow] = {}
        for row in completed:
            first = firsts.setdefault(row.arm, row)
            if row.machine != completed[0].machine:
                yield f"run {row.number} differs in versions, devices or code from run {completed[0].number}"
            elif row.code != first.code:
                yield f"run {row.number} has other code than run {first.number}: a file was edited meanwhile"

    def _of_facts(self) -> Iterator[str]:
        """Arms that compute on other data, and runs that read other data than base's first: the files changed.

        Of the latter, only splits that are the same in both arms are compared: others may be drawn anew in each run.
        """
        facts = self.facts()
        if not {BASE, self.change} <= facts.keys():
            return
        yield from unlike_facts(
            facts[BASE], facts[self.change], self.configs.differences(), steps=self.needs_same_steps
        )
        base, change = (self.completed(FACTS, arm)[0] for arm in (BASE, self.change))
        fixed = [split for split in ("train", "val") if base.findings[split] == change.findings[split]]
        for row in self.completed(FACTS, BASE):
            if any(row.findings[split] != base.findings[split] for split in fixed):
                yield f"run {row.number} reads other samples than run {base.number}: the data were changed meanwhile"

    def _of_steps(self) -> Iterator[str]:
        """Steps of the change that failed, or differ by more than is explained."""
        ended = [row for row in self.rows if row.state in (COMPLETED, FAILED)]
        steps = [row for row in ended if (row.purpose, row.arm) == (STEPS, self.change)]
        if not steps:
            return
        exact = self.exact
        if exact is not None and exact.name == DIFFERENT:
            yield _computes_other(exact, self.tolerances.exact, " in double precision")
            return
        for row in steps:
            if row.state == FAILED:
                yield f"the steps of the change cannot be compared with those of base: {row.reason}"
            elif (numerics := class_of(row.findings, self.tolerances, exact)).name == DIFFERENT:
                yield _computes_other(numerics, self.tolerances.asked)


def _computes_other(numerics: Numerics, allowed: float, where: str = "") -> str:
    return (
        f"the change computes different numbers{where}: after one step the {numerics.worst} differs by "
        f"{numerics.biggest:.2g} of its size, and rounding explains {allowed:.2g}"
    )
