"""A judgement of commands: what is run before the rounds, and how long a run may take."""

from dataclasses import dataclass
from statistics import median

from manyheads.runner.answers.judge.claims import UNDECIDED
from manyheads.runner.answers.judge.command.arm_runs import ArmRuns
from manyheads.runner.answers.judge.command.command_question import CommandQuestion
from manyheads.runner.answers.judge.judgement import Judgement
from manyheads.runner.answers.measure.rows import BASE, CHANGE, COMPLETED, FAILED, TRIAL, RunRow

HANGS = 10.0  # times base's seconds, after which a run counts as hanging
SHORTEST = 5.0  # seconds that every run may take


@dataclass(frozen=True)
class CommandJudgement(Judgement):
    """A judgement of two commands. ``timeout``: seconds that a run may take until one of base has ended."""

    runs: ArmRuns
    question: CommandQuestion
    timeout: float

    def examine(self) -> None:
        """Run base once, whose seconds say what hangs, and the change once."""
        self.runs.end_leftovers()
        for arm in (BASE, CHANGE):
            tried = [row for row in self.runs.ledger.rows() if (row.purpose, row.arm) == (TRIAL, arm)]
            is_over = any(row.state == COMPLETED or (row.state == FAILED and arm == CHANGE) for row in tried)
            if not is_over and self.claims().verdict == UNDECIDED:
                self.run(TRIAL, arm)

    def examine_again(self) -> None:
        """Nothing: its files are copies, and others make it another question."""

    def run(self, purpose: str, arm: str, round: int = 0, turn: int = 0) -> RunRow:
        return self.runs.start(purpose, arm, round, turn, timeout=self._limit())

    def _limit(self) -> float:
        """The seconds that the next run may take."""
        rows = [row for row in self.runs.ledger.rows() if row.arm == BASE and row.state == COMPLETED]
        if not rows:
            return self.timeout
        return max(SHORTEST, HANGS * median(row.findings["seconds"] for row in rows))
