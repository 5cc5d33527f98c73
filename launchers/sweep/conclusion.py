"""The end of a sweep, or of one of its batches: the outcome of its jobs, the comparison, the exit code."""

from pathlib import Path
from typing import Any

from hydra.experimental.callback import Callback
from omegaconf import DictConfig

from manyheads.launchers.sweep import console
from manyheads.runner.config.schema import is_run_config
from manyheads.runner.errors import Ended, ExitCode
from manyheads.runner.report.write_report import refresh
from manyheads.runner.run.ledger import Entry, Ledger
from manyheads.runner.run.run_folder import RunFolder


def conclude(ledger: Ledger, *, every_job: bool) -> None:
    """Print the outcome of the jobs, and update the comparison. ``every_job``: also print its table."""
    if not (entries := ledger.entries()):
        return
    if any(entry.state not in ("pending", "running", "interrupted") for entry in entries):  # which takes seconds
        refresh(Path(str(RunFolder(ledger.sweep))), quiet=not every_job)  # named as a person would
    console.outcome(ledger)


def end_as(ledger: Ledger) -> None:
    """Raises Ended with exit code 1 if a job failed, or with 2 if none ran and all that failed were refused.

    Skipped jobs do not count as failures.
    """
    entries = [entry for entry in ledger.entries() if entry.state in ("completed", "failed")]
    if any(entry.state == "failed" for entry in entries):
        refused = all(_was_refused(entry, ledger) for entry in entries)
        raise Ended(ExitCode.REFUSED if refused else ExitCode.FAILED)


def _was_refused(entry: Entry, ledger: Ledger) -> bool:
    """Whether the job's config was refused; a job whose config was corrected later has a result."""
    return entry.signature is None and not RunFolder(ledger.sweep / entry.folder).result.exists()


class EndOfSweep(Callback):
    """Sets the exit code of a sweep of run configs by its ledger, once Hydra's sweeper has seen all results."""

    def on_multirun_end(self, config: DictConfig, **_: Any) -> None:
        ledger = Ledger(Path(str(config.hydra.sweep.dir)))
        if is_run_config(config) and ledger.exists():
            end_as(ledger)
