"""The answer of the command ``parity``, and how it is shown: a row for each strategy, what differs, and why."""

import math
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from rich.table import Table
from rich.text import Text

from manyheads.runner.answers.measure.steps_task import ParityFindings, ParityTask
from manyheads.runner.answers.parity.parity_causes import causes, unused_note
from manyheads.runner.answers.parity.parity_plan import DIFFERENT, FAILED, NOT_HERE, ParityOutcome
from manyheads.runner.errors import ExitCode
from manyheads.runner.machine import invocation
from manyheads.runner.machine.console import Console
from manyheads.runner.option.run_config import RunConfig
from manyheads.runner.run.answer import Answer
from manyheads.runner.run.json_schema import TEXT_ONLY
from manyheads.runner.run.run_folder import RunFolder
from manyheads.runner.wording import counted


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
        return cls(
            parallel=outcome.strategy,
            state=outcome.state,
            ranks=outcome.ranks,
            largest={kind: outcome.largest(kind) for kind in COLUMNS} if compared else {},
            beyond=[
                TensorDifference(entry["kind"], entry["name"], entry["largest"], entry["step"] + 1, entry["first"] + 1)
                for entry in outcome.beyond()
            ],
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
        """The answer for these outcomes. ``findings``: of the baseline's own run; ``path``: the folder of all runs."""
        strategies = [StrategyParity.of(outcome, findings) for outcome in outcomes]
        return cls(baseline, findings["steps"], task.tolerance, path, strategies, outcomes, findings, task)

    @property
    def exit_code(self) -> ExitCode:
        return ExitCode.NO if any(outcome.differs for outcome in self.outcomes) else ExitCode.DONE

    def show(self) -> None:
        show(self.outcomes, self.findings, self.task, self.folder, self.baseline)


COLUMNS = {"loss": "loss", "gradient": "gradients", "weight": "weights", "buffer": "buffers"}
MOST_SHOWN = 8
NARROWEST = 76  # columns; a narrower terminal wraps lines, which is better than digits cut off
MOST_CHARACTERS = 300


def announce(strategies: list[str], run: RunConfig, task: ParityTask) -> None:
    """Print the plan first, since a comparison may take a while."""
    what = f"{counted(task.steps, 'step')} of {run.model.name} on {run.data.name}"
    Console().print(Text(f"{what} by {', '.join(strategies)}, in {run.precision.name}"))


def show(outcomes: list[ParityOutcome], baseline: ParityFindings, task: ParityTask, path: Path, name: str) -> None:
    """Print the comparison. ``baseline``: its findings; ``path``: the folder of all runs; ``name``: the baseline's."""
    console = Console()
    Console(width=max(console.width, NARROWEST)).print(_table(outcomes, name))
    for outcome in outcomes:
        for line in _lines(outcome, baseline):
            console.print(Text(line))
    if not any(outcome.differs for outcome in outcomes) and (note := unused_note(baseline)):
        console.print(Text(f"Note: {note}"))
    console.print(Text(f"results in {RunFolder(path)}"), soft_wrap=True)
    console.print(Text(_summary(outcomes, name, baseline["steps"], task)))


def _table(outcomes: list[ParityOutcome], baseline: str) -> Table:
    table = Table(title=f"Largest difference against {baseline}", title_justify="left", title_style="bold")
    table.add_column("parallel", no_wrap=True)
    table.add_column("ranks", justify="right")
    for title in COLUMNS.values():
        table.add_column(title, justify="right", no_wrap=True)
    table.add_column("verdict", no_wrap=True)
    for outcome in outcomes:
        compared = bool(outcome.findings.get("differences"))
        cells = [size(outcome.largest(kind)) if compared else "" for kind in COLUMNS]
        ranks = "" if outcome.ranks is None else str(outcome.ranks)
        table.add_row(*map(Text, (outcome.strategy, ranks, *cells, outcome.state)))
    return table


def _lines(outcome: ParityOutcome, baseline: ParityFindings) -> list[str]:
    """The lines on one strategy."""
    name = outcome.strategy
    if outcome.state == NOT_HERE:
        reason = re.split(r" \(|; |\. ", outcome.error)[0].rstrip(".").removeprefix(f"parallel={name}: ")
        return [f"{name} is unavailable: {reason}. `{invocation.command('doctor')}` says more."]
    if not outcome.differs:
        return []
    beyond = outcome.beyond()
    width = max((len(entry["name"]) for entry in beyond[:MOST_SHOWN]), default=0)
    lines = [f"{name} exceeds the tolerance in:"] if beyond else []
    for entry in beyond[:MOST_SHOWN]:
        since = f", beyond it since step {entry['first'] + 1}" if entry["first"] < entry["step"] else ""
        where = f"{entry['kind']:<8} {entry['name'] if entry['kind'] != 'loss' else '':<{width}}"
        lines.append(f"  {where} {size(entry['largest']):>8}  at step {entry['step'] + 1}{since}")
    if len(beyond) > MOST_SHOWN:
        lines.append(f"  and {len(beyond) - MOST_SHOWN} more, in {name}/result.json")
    if outcome.state == FAILED:
        lines.append(f"{name} failed: {_shortened(outcome.error)}")
    return [*lines, *(f"Cause ({name}): {text}" for text in causes(outcome, baseline))]


def _summary(outcomes: list[ParityOutcome], baseline: str, steps: int, task: ParityTask) -> str:
    compared = [outcome for outcome in outcomes if outcome.state != NOT_HERE]
    failed = [outcome.strategy for outcome in compared if outcome.state == FAILED]
    different = [outcome.strategy for outcome in compared if outcome.differs and outcome.state != FAILED]
    limit = f"tolerance {task.tolerance:g}, {counted(steps, 'step')}"
    if told := [f"{word}: {', '.join(names)}" for word, names in ((FAILED, failed), (DIFFERENT, different)) if names]:
        return f"{'; '.join(told)} against {baseline} ({limit})"
    return f"equal: {', '.join(outcome.strategy for outcome in compared)} and {baseline} ({limit})"


def size(value: float) -> str:
    """A relative difference in two digits; inf also if something is not a number."""
    if not math.isfinite(value):
        return "inf"
    return f"{value:.1e}" if value else "0"


def _shortened(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= MOST_CHARACTERS else f"{text[:MOST_CHARACTERS]} ..."
