"""One configuration beside the user's own: both as ``judge`` sees them in a tuning's ledger."""

from dataclasses import replace

from manyheads.runner.judge.claims import REFUSED, Claims
from manyheads.runner.judge.judgement import Judgement
from manyheads.runner.judge.numerics import AS_ASKED, tolerances_of
from manyheads.runner.judge.question import Question
from manyheads.runner.judge.rows import BASE, CHANGE, FACTS, RunLedger, RunRow
from manyheads.runner.judge.runs import Purpose, Runs
from manyheads.runner.judge.task import BATCH_STATISTICS
from manyheads.runner.option.locate import Section
from manyheads.runner.option.run_config import RunConfig

SAME, SHARES = "same numerics", "BatchNorm over each rank's share"
ALPHA, LEAST = 0.05, 0.0  # of a judgement; a trial only examines


class Trial:
    """``arm``: the configuration's name in the ledger of ``runs``; ``base``, ``run``: complete run configs."""

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
        """The class of its numerics that follows from whether there is a BatchNorm over each rank's share.

        Raises Refused if it computes on other samples, in other batches or other dtypes.
        """
        self._judgement.ask_facts()
        self._claims()
        rows = (row for row in self._judgement.runs.ledger.rows() if row.purpose == FACTS and row.arm == CHANGE)
        return SAME if self.expected == SHARES and not next(rows).findings[BATCH_STATISTICS] else self.expected

    def examine(self) -> str:
        """The class of its numerics. Raises Refused if it does not take the user's own updates."""
        if self._of_gradients:  # whose updates are meant to be others
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
        """The class as the options of both declare it."""
        if self._of_gradients:
            return self._of_gradients
        if self.question.changes_precision:
            return self._of_precision
        return SHARES if self.question.tolerances[2] else SAME


def gradients_of(run: RunConfig) -> str:
    """The keys by which gradients are compressed or combined in another way than averaging, as overrides."""
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
    """The runs of a tuning, without those of other configurations."""

    def __init__(self, runs: Runs, arm: str):
        super().__init__(runs.folder)
        self._all, self._arm = runs, arm
        self.ledger = _PairLedger(runs, arm)

    def start(self, config: Section, purpose: Purpose, *, arm: str, round: int = 0, place: int = 0) -> RunRow:
        row = self._all.start(config, purpose, arm=BASE if arm == BASE else self._arm, round=round, place=place)
        return replace(row, arm=arm)


class _PairLedger(RunLedger):
    """Their rows, where what ``judge`` calls the change is ``arm``."""

    def __init__(self, runs: Runs, arm: str):
        super().__init__(runs.folder)
        self._own = {BASE: BASE, arm: CHANGE}

    def rows(self) -> list[RunRow]:
        return [replace(row, arm=self._own[row.arm]) for row in super().rows() if row.arm in self._own]
