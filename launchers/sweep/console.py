"""The output of a sweep in addition to that of its jobs."""

from collections import Counter
from collections.abc import Iterable

from rich.table import Table
from rich.text import Text

from manyheads.launchers.sweep.plan import PlannedJob
from manyheads.runner.machine import invocation
from manyheads.runner.machine.console import Console
from manyheads.runner.run.ledger import STATES, Entry, Ledger
from manyheads.runner.run.run_folder import RunFolder

COLOURS = {"completed": "green", "failed": "red", "skipped": "yellow", "interrupted": "yellow", "pruned": "yellow"}


class Titles:
    """One-line titles of jobs, which contain only what differs among them."""

    def __init__(self, entries: Iterable[Entry]):
        entries = list(entries)
        times = Counter(override for entry in entries for override in entry.overrides)
        self._common = {override for override, count in times.items() if count == len(entries) > 1}

    def of(self, entry: Entry) -> str:
        """The title of a job."""
        text = " ".join(override for override in entry.overrides if override not in self._common) or f"job {entry.job}"
        if entry.repeat > 1:
            text += f" (repeat {entry.repeat})"
        if entry.split > 1:
            text += f" (micro-batch / {entry.split})"
        return text


def all_excluded() -> None:
    """Print that the sweep has no jobs left."""
    Console(stderr=True).print("Every job was excluded: nothing is left to run.")


def job_starts(title: str, *, at: int, of: int) -> None:
    """Print a line above the job's own output."""
    Console().print(Text.assemble((f"\n[{at}/{of}] ", "bold"), (title, "bold")), soft_wrap=True)


def job_ends(entry: Entry, title: str, *, apart: bool) -> None:
    """Print what the job's own output does not say. ``apart``: that output went to a file."""
    if apart:
        reason = f": {entry.reason}" if entry.reason else ""
        Console().print(Text.assemble(f"{title}: ", (entry.state, COLOURS[entry.state]), reason), soft_wrap=True)
    elif entry.state in ("skipped", "interrupted", "pruned"):
        Console(stderr=True).print(f"{entry.state}: {entry.reason}", style=COLOURS[entry.state], soft_wrap=True)


def show_plan(planned: list[PlannedJob]) -> None:
    """Print the plan for hydra.launcher.dry_run: every job, and below the table why some cannot run."""
    titles = Titles(job.entry for job in planned)
    reasons: dict[str, int] = {}
    table = Table("job", "what", "state", box=None, header_style="bold")
    for job in planned:
        entry = job.entry
        mark = f" ({reasons.setdefault(entry.reason, len(reasons) + 1)})" if entry.reason else ""
        state = {"pending": Text("runs", "green"), "skipped": Text(f"skipped{mark}", "yellow")}.get(entry.state)
        if job.excluded:
            state = Text(f"excluded by {job.excluded}", "dim")
        table.add_row(str(entry.job), titles.of(entry), state or Text(f"can't run{mark}", "red"))
    console = Console()
    console.print(table)
    for reason, number in reasons.items():
        console.print(f"({number}) {reason}", soft_wrap=True)
    count = sum(job.entry.state == "pending" and not job.excluded for job in planned)
    console.print(f"{count} of {len(planned)} jobs would run.")


def outcome(ledger: Ledger) -> None:
    """Print how many jobs ended in which state, and how to continue."""
    counts = Counter(entry.state for entry in ledger.entries())
    total, console = sum(counts.values()), Console(stderr=True, soft_wrap=True)
    states = ", ".join(f"{counts[state]} {state}" for state in STATES if counts[state])
    console.print(f"\n{total} job{'s' * (total != 1)}: {states}", style="bold")
    if counts["skipped"] == total:
        console.print("Every job was skipped: none of the backends that they need is available.")
    if counts["pending"] + counts["running"] and not counts["interrupted"]:  # else the command's last line says it
        console.print(f"Resume with: {invocation.command('resume', RunFolder(ledger.sweep))}")
