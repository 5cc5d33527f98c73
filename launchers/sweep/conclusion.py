"""The end of a sweep, or of one of its batches: how many jobs came to what, and the comparison."""

from launchers.sweep import console
from runner.ledger import Ledger
from runner.report import refresh


def conclude(ledger: Ledger, *, every_job: bool) -> None:
    """Print what became of the jobs, and bring the comparison up to date. ``every_job``: with its table."""
    if not ledger.entries():
        return
    refresh(ledger.sweep, quiet=not every_job)
    console.outcome(ledger)
