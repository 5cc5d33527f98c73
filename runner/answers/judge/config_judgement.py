"""A judgement of run configs: what their runs do before the rounds, and in them."""

from dataclasses import dataclass

from manyheads.runner.answers.judge.claims import UNDECIDED
from manyheads.runner.answers.judge.config_question import ConfigQuestion
from manyheads.runner.answers.judge.judgement import Judgement
from manyheads.runner.answers.judge.training import training
from manyheads.runner.answers.measure import purposes
from manyheads.runner.answers.measure.arm_configs import TRIAL_UPDATES
from manyheads.runner.answers.measure.examination import Examination
from manyheads.runner.answers.measure.rounds import updates_of
from manyheads.runner.answers.measure.rows import BASE, FACTS, FLOOR, ROUND, TRIAL, RunRow
from manyheads.runner.answers.measure.runs import Purpose, Runs
from manyheads.runner.option.tree import Section

CHANGED_NUMERICS = (
    " To compare complete trainings of a change that computes something else on purpose: --on speed,<metric> "
    "--allow-changed-numerics."
)


@dataclass(frozen=True)
class ConfigJudgement(Judgement):
    """A judgement of two run configs."""

    runs: Runs
    question: ConfigQuestion

    @property
    def hint(self) -> str:
        return CHANGED_NUMERICS if self.question.is_about_speed else ""

    def examine(self) -> None:
        self.examination.run()
        if self.claims().verdict == UNDECIDED and self.question.is_about_speed and not self.completed(TRIAL, BASE):
            self.run(TRIAL, BASE)

    def examine_again(self) -> None:
        self.examination.start(purposes.facts(), BASE)  # the data may have changed since

    @property
    def examination(self) -> Examination:
        """The runs that show whether the arms can be compared."""
        return Examination(self.runs, self.question.configs, needs_same_steps=self.question.is_about_speed)

    def run(self, purpose: str, arm: str, round: int = 0, turn: int = 0) -> RunRow:
        config = self._config(purpose, arm, round, turn)
        return self.runs.start(config, self._work(purpose), arm=arm, round=round, turn=turn)

    def _work(self, purpose: str) -> Purpose:
        """What a run with this purpose does."""
        if purpose == TRIAL:
            return purposes.pace(TRIAL, TRIAL_UPDATES)
        if self.question.is_about_speed:
            return purposes.pace(purpose, self._updates())
        return training(purpose, self.question.aims)

    def _config(self, purpose: str, arm: str, round: int, turn: int) -> Section:
        facts = self.completed(FACTS, arm)
        per_epoch = facts[0].findings["per_epoch"] if facts else 1
        is_timed = self.question.is_about_speed and purpose in (FLOOR, ROUND)
        updates = TRIAL_UPDATES if purpose == TRIAL else self._updates() if is_timed else 0
        where = {"round": round, "turn": turn}
        return self.question.config(purpose, arm, **where, updates=updates, per_epoch=per_epoch)

    def _updates(self) -> int:
        """How many updates are timed."""
        return updates_of(self.runs.ledger.rows())
