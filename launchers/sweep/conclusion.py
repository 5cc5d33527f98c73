"""The end of a sweep, or of one of its batches: how many jobs came to what, and the comparison."""

from launchers.sweep import console
from runner.ledger import Ledger


def conclude(ledger: Ledger, *, every_job: bool) -> None:
    """Print what became of the jobs, and bring the comparison up to date. ``every_job``: with its table."""
    if ledger.entries():
        console.outcome(ledger)
