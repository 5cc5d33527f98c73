"""Compares a configuration of a tuning with the user's own, as ``judge`` does, by runs of the tuning's ledger."""

from dataclasses import replace

from manyheads.runner.answers.judge.claims import REFUSED, Claims
from manyheads.runner.answers.judge.judgement import Judgement
from manyheads.runner.answers.judge.numerics import AS_ASKED, tolerances_of
from manyheads.runner.answers.judge.question import Question
from manyheads.runner.answers.judge.rows import BASE, CHANGE, FACTS, RunLedger, RunRow
from manyheads.runner.answers.judge.runs import Purpose, Runs
from manyheads.runner.answers.judge.task import BATCH_STATISTICS
from manyheads.runner.option.locate import Section
from manyheads.runner.option.run_config import RunConfig

SAME, SHARES = "same numerics", "BatchNorm over each rank's share"
ALPHA, LEAST = 0.05, 0.0  # a question needs them, but a trial never reaches a verdict


class Trial:
    """The examination of one configuration, before it may be chosen.

    ``arm``: its name in the ledger of ``runs``. ``base``, ``run``: the run configs of the user's own and of this one.
    """

    def __init__(self, runs: Runs, arm: str, base: RunConfig, run: RunConfig):
        self.question = Question(
            overrides=[],
            change=arm,
            on="speed",
            least=LEAST,
            alpha=ALPHA,
            test="symmetric",
            tolerances=tolerances_of(base, run),
            code="",
            draw="",
            base=dict(base.written),
            changed=dict(run.written),
        )
        self._of_precision = f"precision={run.precision.name}"
        self._of_gradients = gradients_of(run) if gradients_of(run) != gradients_of(base) else ""
        self._judgement = Judgement(_PairRuns(runs, arm), self.question, budget=0.0, keeps_steps=True)

    def check(self) -> str:
        """The class of its numerics, from what it computes on: also whether it has BatchNorm over each rank's samples.

        Raises Refused if it computes on other samples, in other batches or other dtypes.
        """
        self._judgement.ask_facts()
        self._claims()
        rows = (row for row in self._judgement.runs.ledger.rows() if row.purpose == FACTS and row.arm == CHANGE)
        return SAME if self.expected == SHARES and not next(rows).findings[BATCH_STATISTICS] else self.expected

    def examine(self) -> str:
        """The class of its numerics, from comparing steps. Raises Refused if its updates are not the user's own."""
        if self._of_gradients:  # its updates differ on purpose
            return self.check()
        self._judgement.examine()
        claims = self._claims()
        if claims.numerics != AS_ASKED:
            return SAME
        return self._of_precision if self.question.changes_precision else SHARES

    def _claims(self) -> Claims:
        claims = self._judgement.claims()
        if claims.reasons:
            raise Refused(claims)
        return claims

    @property
    def expected(self) -> str:
        """The class of its numerics as the options of both configurations declare it."""
        if self._of_gradients:
            return self._of_gradients
        if self.question.changes_precision:
            return self._of_precision
        return SHARES if self.question.tolerances[2] else SAME


def gradients_of(run: RunConfig) -> str:
    """The overrides that compress gradients, or combine them other than by averaging."""
    keys = run.parallel.changes_gradients.items()
    return " ".join(f"parallel.{key}={run.parallel.section[key]}" for key, plain in keys if _has(run, key, plain))


def _has(run: RunConfig, key: str, plain: object) -> bool:
    return bool(run.parallel.section.get(key, plain) != plain)


class Refused(Exception):
    """A configuration that may not be chosen, whose ``claims`` say why."""

    def __init__(self, claims: Claims):
        about = "computes something else" if claims.verdict == REFUSED else "cannot run"
        super().__init__(f"{about}: {'; '.join(claims.reasons)}")


class _PairRuns(Runs):
    """The runs of a tuning with the user's own configuration and with ``arm``."""

    def __init__(self, runs: Runs, arm: str):
        super().__init__(runs.folder)
        self._all, self._arm = runs, arm
        self.ledger = _PairLedger(runs, arm)

    def start(self, config: Section, purpose: Purpose, *, arm: str, round: int = 0, place: int = 0) -> RunRow:
        row = self._all.start(config, purpose, arm=BASE if arm == BASE else self._arm, round=round, place=place)
        return replace(row, arm=arm)


class _PairLedger(RunLedger):
    """Their ledger, in which ``arm`` is called CHANGE, as ``judge`` expects."""

    def __init__(self, runs: Runs, arm: str):
        super().__init__(runs.folder)
        self._own = {BASE: BASE, arm: CHANGE}

    def rows(self) -> list[RunRow]:
        return [replace(row, arm=self._own[row.arm]) for row in super().rows() if row.arm in self._own]
