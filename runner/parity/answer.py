"""What the command ``parity`` answers."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from manyheads.runner.errors import ExitCode
from manyheads.runner.parity.parity_causes import causes
from manyheads.runner.parity.parity_findings import ParityFindings
from manyheads.runner.parity.parity_plan import ParityOutcome
from manyheads.runner.parity.parity_task import ParityTask
from manyheads.runner.parity.print_parity import COLUMNS, show
from manyheads.runner.run.answer import Answer
from manyheads.runner.run.json_schema import TEXT_ONLY


@dataclass(frozen=True)
class TensorDifference:
    """A tensor that differs by more than the tolerance. Steps are counted from 1."""

    kind: Annotated[str, "loss, gradient, weight or buffer"]
    name: str
    largest: Annotated[float | None, "largest relative difference; null if something is not a number"]
    step: Annotated[int, "at which it was largest"]
    since: Annotated[int, "the first step beyond the tolerance"]


@dataclass(frozen=True)
class StrategyParity:
    """A strategy against the baseline."""

    parallel: str
    state: Annotated[str, "equal, different, failed or not here"]
    ranks: int | None
    largest: Annotated[dict[str, float | None], "largest relative difference by kind of tensor"]
    beyond: Annotated[list[TensorDifference], "what exceeds the tolerance, the largest first"]
    causes: Annotated[list[str], "sentences that explain it"]
    error: Annotated[str, "why it failed, or is unavailable"]

    @classmethod
    def of(cls, outcome: ParityOutcome, baseline: ParityFindings) -> "StrategyParity":
        """The outcome with its causes."""
        compared = bool(outcome.findings.get("differences"))
        beyond = [
            TensorDifference(each["kind"], each["name"], each["largest"], each["step"] + 1, each["first"] + 1)
            for each in outcome.beyond()
        ]
        return cls(
            parallel=outcome.strategy,
            state=outcome.state,
            ranks=outcome.ranks,
            largest={kind: outcome.largest(kind) for kind in COLUMNS} if compared else {},
            beyond=beyond,
            causes=[*causes(outcome, baseline)] if outcome.differs else [],
            error=outcome.error,
        )


@dataclass(frozen=True)
class Parity(Answer):
    """The same steps on several strategies."""

    baseline: str
    steps: int
    tolerance: Annotated[float, "relative difference that rounding explains"]
    folder: Annotated[Path, "of the runs"]
    strategies: list[StrategyParity]
    outcomes: Annotated[list[ParityOutcome], TEXT_ONLY]
    findings: Annotated[ParityFindings, TEXT_ONLY]
    task: Annotated[ParityTask, TEXT_ONLY]

    @classmethod
    def of(
        cls, outcomes: list[ParityOutcome], findings: ParityFindings, task: ParityTask, path: Path, baseline: str
    ) -> "Parity":
        """``findings``: of the baseline's own run; ``path``: where everything is."""
        strategies = [StrategyParity.of(each, findings) for each in outcomes]
        return cls(baseline, findings["steps"], task.tolerance, path, strategies, outcomes, findings, task)

    @property
    def exit_code(self) -> ExitCode:
        return ExitCode.NO if any(outcome.differs for outcome in self.outcomes) else ExitCode.DONE

    def show(self) -> None:
        show(self.outcomes, self.findings, self.task, self.folder, self.baseline)
