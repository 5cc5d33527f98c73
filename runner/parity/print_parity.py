"""The comparison in a terminal: a row for each strategy, then what differs, then why."""

import math
import re
from pathlib import Path

from rich.console import Console
from rich.table import Table
from rich.text import Text

from manyheads.runner.machine import invocation
from manyheads.runner.option.run_config import RunConfig
from manyheads.runner.parity.parity_causes import causes, unused_note
from manyheads.runner.parity.parity_findings import ParityFindings, TensorDifference
from manyheads.runner.parity.parity_plan import FAILED, NOT_HERE, ParityOutcome
from manyheads.runner.parity.parity_task import ParityTask
from manyheads.runner.run.run_folder import RunFolder

COLUMNS = {"loss": "loss", "gradient": "gradients", "weight": "weights", "buffer": "buffers"}
MOST_TOLD = 8
NARROWEST = 76  # columns; a narrower terminal wraps lines, which is better than digits cut off
MOST_CHARACTERS = 300


def announce(strategies: list[str], run: RunConfig, task: ParityTask) -> None:
    """What is going to be done; said first, since it may take a while."""
    steps = f"{task.steps} step{'s' if task.steps > 1 else ''}"
    text = f"{steps} of {run.model.name} on {run.data.name} by {', '.join(strategies)}, in {run.precision.name}"
    Console(highlight=False).print(Text(text))


def show(outcomes: list[ParityOutcome], baseline: ParityFindings, task: ParityTask, path: Path, name: str) -> None:
    """Print it all. ``baseline``: what its own run found; ``path``: where everything is; ``name``: the baseline's."""
    console = Console(highlight=False)
    Console(highlight=False, width=max(console.width, NARROWEST)).print(_table(outcomes, name))
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
    """What there is to say of one strategy."""
    name = outcome.strategy
    if outcome.state == NOT_HERE:
        reason = re.split(r" \(|; |\. ", outcome.error)[0].rstrip(".").removeprefix(f"parallel={name}: ")
        return [f"{name} is unavailable: {reason}. `{invocation.command('doctor')}` says more."]
    if not outcome.differs:
        return []
    beyond = outcome.beyond()
    lines = [
        f"  {entry['kind']:<8} {entry['name'] if entry['kind'] != 'loss' else '':<{_width(beyond)}} "
        f"{size(entry['largest']):>8}  at step {entry['step'] + 1}{_since(entry)}"
        for entry in beyond[:MOST_TOLD]
    ]
    if len(beyond) > MOST_TOLD:
        lines.append(f"  and {len(beyond) - MOST_TOLD} more, in {name}/result.json")
    if beyond:
        lines.insert(0, f"{name} exceeds the tolerance in:")
    if outcome.state == FAILED:
        lines.append(f"{name} failed: {_shortened(outcome.error)}")
    return [*lines, *(f"Cause ({name}): {text}" for text in causes(outcome, baseline))]


def _since(entry: TensorDifference) -> str:
    return f", beyond it since step {entry['first'] + 1}" if entry["first"] < entry["step"] else ""


def _width(entries: list[TensorDifference]) -> int:
    return max((len(entry["name"]) for entry in entries[:MOST_TOLD]), default=0)


def _summary(outcomes: list[ParityOutcome], baseline: str, steps: int, task: ParityTask) -> str:
    compared = [outcome for outcome in outcomes if outcome.state != NOT_HERE]
    failed = [outcome.strategy for outcome in compared if outcome.state == FAILED]
    different = [outcome.strategy for outcome in compared if outcome.differs and outcome.state != FAILED]
    limit = f"tolerance {task.tolerance:g}, {steps} step{'s' if steps != 1 else ''}"
    told = [f"failed: {', '.join(failed)}"] if failed else []
    told += [f"different: {', '.join(different)}"] if different else []
    if told:
        return f"{'; '.join(told)} against {baseline} ({limit})"
    return f"equal: {', '.join(outcome.strategy for outcome in compared)} and {baseline} ({limit})"


def size(value: float) -> str:
    """A relative difference in two digits; inf also where something is not a number."""
    if not math.isfinite(value):
        return "inf"
    return f"{value:.1e}" if value else "0"


def _shortened(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= MOST_CHARACTERS else f"{text[:MOST_CHARACTERS]} ..."
