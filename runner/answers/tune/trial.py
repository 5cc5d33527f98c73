"""Compares a configuration of a tuning with the user's own, by runs of the tuning's ledger."""

from manyheads.runner.answers.measure.arm_configs import ArmConfigs
from manyheads.runner.answers.measure.evidence import Evidence
from manyheads.runner.answers.measure.examination import Examination
from manyheads.runner.answers.measure.numerics import AS_ASKED
from manyheads.runner.answers.measure.runs import Runs
from manyheads.runner.option.run_config import RunConfig

SAME, SHARES = "same numerics", "BatchNorm over each rank's share"


class Trial:
    """The examination of one configuration, before it may be chosen.

    ``arm``: its name in the ledger of ``runs``. ``base``, ``run``: the run configs of the user's own and of this one.
    """

    def __init__(self, runs: Runs, arm: str, base: RunConfig, run: RunConfig):
        self._configs = ArmConfigs.of(base, run)
        self._of_precision = f"precision={run.precision.name}"
        self._of_gradients = gradients_of(run) if gradients_of(run) != gradients_of(base) else ""
        self._examination = Examination(runs, self._configs, arm, keeps_steps=True)

    def examine(self) -> str:
        """The class of its numerics, from comparing steps. Raises Refused if its updates are not the user's own."""
        if self._of_gradients:  # its updates differ on purpose; not its samples and dtypes
            self._examination.ask_facts()
            self._evidence()
            return self._of_gradients
        self._examination.run()
        numerics = self._evidence().numerics
        if numerics is None or numerics.name != AS_ASKED:
            return SAME
        return self._of_precision if self._configs.changes_precision else SHARES

    def _evidence(self) -> Evidence:
        evidence = self._examination.evidence
        if reasons := evidence.refusals():
            raise Refused(f"computes something else: {'; '.join(reasons)}")
        if evidence.failure is not None:
            raise Refused(f"cannot run: {evidence.failure}")
        return evidence

    @property
    def expected(self) -> str:
        """The class of its numerics as the options of both configurations declare it."""
        if self._of_gradients:
            return self._of_gradients
        if self._configs.changes_precision:
            return self._of_precision
        return SHARES if self._configs.tolerances[2] else SAME


def gradients_of(run: RunConfig) -> str:
    """The overrides that compress gradients, or combine them other than by averaging."""
    section = run.parallel.section
    return " ".join(
        f"parallel.{key}={section[key]}"
        for key, plain in run.parallel.changes_gradients.items()
        if section.get(key, plain) != plain
    )


class Refused(Exception):
    """A configuration that may not be chosen, and why."""
