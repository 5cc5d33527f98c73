"""Examines two arms before they are timed: what they compute on, and whether their first updates agree."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from manyheads.runner.answers.measure import purposes
from manyheads.runner.answers.measure.arm_configs import ArmConfigs, examined
from manyheads.runner.answers.measure.evidence import Evidence
from manyheads.runner.answers.measure.numerics import SAME_BITS
from manyheads.runner.answers.measure.rows import BASE, CHANGE, COMPLETED, EXACT, FACTS, FAILED, STEPS, RunRow
from manyheads.runner.answers.measure.runs import Purpose, Runs
from manyheads.runner.answers.measure.steps_task import StepFiles
from manyheads.runner.machine.process import blocked_signals
from manyheads.runner.option.run_config import RunConfig
from manyheads.runner.run.files import remove
from manyheads.runner.run.run_folder import RunFolder


def remove_steps(runs: Runs) -> None:
    """Remove the recorded steps of base, including those of attempts that were killed."""
    with blocked_signals():
        for row in runs.ledger.rows():
            if row.purpose in (STEPS, EXACT) and row.arm == BASE:
                remove(_steps_of(runs, row).folder)


def _steps_of(runs: Runs, row: RunRow) -> StepFiles:
    return StepFiles.of(RunFolder(runs.folder / row.folder))


@dataclass(frozen=True)
class Examination:
    """Runs of two arms, in the ledger of ``runs``, of which those that have ended are not repeated.

    ``change``: the name of the changed arm in it; ``needs_same_steps``: whether steps are compared; ``keeps_steps``:
    keep base's for other examinations with the same base.
    """

    runs: Runs
    configs: ArmConfigs
    change: str = CHANGE
    needs_same_steps: bool = True
    keeps_steps: bool = False

    @property
    def evidence(self) -> Evidence:
        """The evidence of the runs so far."""
        rows = [row for row in self.runs.ledger.rows() if row.arm in (BASE, self.change)]
        return Evidence(self.configs, rows, self.change, self.needs_same_steps)

    def run(self) -> None:
        """Examine both arms; stop as soon as they cannot be compared."""
        if not self.keeps_steps:
            remove_steps(self.runs)
        for ask in (self.ask_facts, *((self._steps, self._exact) if self.needs_same_steps else ())):
            if not self.evidence.refusals() and self.evidence.failure is None:
                ask()

    def ask_facts(self) -> None:
        """Find out what both arms compute on, unless the ledger already says it."""
        for arm in (BASE, self.change):
            if not self.evidence.completed(FACTS, arm):
                self.start(purposes.facts(), arm)

    def start(self, purpose: Purpose, arm: str) -> RunRow:
        """Run an arm for this purpose: FACTS, STEPS or EXACT."""
        config = self.configs.base if arm == BASE else self.configs.changed
        return self.runs.start(examined(config, purpose.name), purpose, arm=arm)

    def _steps(self) -> None:
        if self.evidence.completed(STEPS, self.change):
            return
        compiled = {config["trainer"]["compile"] for config in (self.configs.base, self.configs.changed)}
        trace = compiled == {"none"} and RunConfig.of(self.configs.base).launcher.ranks == 1 and not self.keeps_steps
        self._compare(partial(purposes.steps, tolerance=self.configs.tolerances[0], trace=trace))

    def _exact(self) -> None:
        """Compare steps in double precision, unless they are bit-identical or the change asks only for a precision."""
        numerics = self.evidence.numerics
        if self.configs.changes_only_precision or (numerics is not None and numerics.name == SAME_BITS):
            return
        tried = [row for row in self.evidence.rows if row.purpose == EXACT]
        if not any(row.arm == self.change or row.state == FAILED for row in tried):
            self._compare(purposes.exact)

    def _compare(self, purpose: Callable[..., Purpose]) -> None:
        """Record base's steps, take the change's from the same states and compare them; then remove the record."""
        try:
            row = self._kept(purpose(baseline=None)) or self.start(purpose(baseline=None), BASE)
            if row.state == COMPLETED:
                self.start(purpose(baseline=RunFolder(self.runs.folder / row.folder)), self.change)
        finally:
            if not self.keeps_steps:
                remove_steps(self.runs)

    def _kept(self, purpose: Purpose) -> RunRow | None:
        """The run of base whose recorded steps still exist, if there is one."""
        rows = self.evidence.completed(purpose.name, BASE)
        return next((row for row in rows if _steps_of(self.runs, row).folder.exists()), None)
