"""The end of a sweep, or of one of its batches: how many jobs came to what, and the comparison."""

from pathlib import Path

from manyheads.launchers.sweep import console
from manyheads.runner.report import refresh
from manyheads.runner.run.ledger import Ledger
from manyheads.runner.run.run_folder import RunFolder


def conclude(ledger: Ledger, *, every_job: bool) -> None:
    """Print what became of the jobs, and bring the comparison up to date. ``every_job``: with its table."""
    if not ledger.entries():
        return
    refresh(Path(str(RunFolder(ledger.sweep))), quiet=not every_job)  # named as a person would
    console.outcome(ledger)
