"""Runs the jobs of a sweep, recording each change of state in the ledger first, and concludes it.

The conclusion of a sweep, or of one of its batches, is the outcome of its jobs, the comparison and the exit code.
"""

import threading
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from pathlib import Path

from manyheads.launchers.sweep import console
from manyheads.launchers.sweep.comparison import refresh
from manyheads.launchers.sweep.job_progress import JobProgress, Start, run_job
from manyheads.launchers.sweep.pruning import NoPruning
from manyheads.launchers.sweep.slots import Slots
from manyheads.launchers.sweep.sweep_options import Options
from manyheads.runner.errors import Ended, ExitCode
from manyheads.runner.machine import invocation
from manyheads.runner.machine.process import handled_by, in_background, interrupt
from manyheads.runner.run.ledger import Entry, Ledger
from manyheads.runner.run.progress import keeping
from manyheads.runner.run.run_folder import RunFolder

WATCH_SECONDS = 0.5


def run_jobs(
    entries: list[Entry],
    ledger: Ledger,
    options: Options,
    start: Start,
    *,
    slots: int = 1,
    pruning: NoPruning | None = None,
) -> list[Entry]:
    """Run the jobs and return their final states, in the order given. Raises Interrupted if a signal stopped the sweep.

    ``start`` runs one job in the process that calls it: this one, or with several ``slots`` one of that many child
    processes.
    """
    progress = JobProgress(entries, ledger, options, apart=slots > 1, pruning=pruning)
    with keeping("sweep", f"resume it with: {invocation.command('resume', RunFolder(ledger.sweep))}"):
        if slots > 1:
            Slots(slots, start, options).run(progress)
        else:
            _run_here(progress, start)
        if progress.interrupted:
            raise progress.interrupted
    return progress.entries()


def _run_here(progress: JobProgress, start: Start) -> None:
    with handled_by(interrupt):  # outside of jobs; a running job handles its signals itself
        while (entry := progress.next()) and progress.may_start():
            progress.started(entry)
            with _watched(progress.pruning, entry):
                done = run_job(entry, start)
            progress.ended(done)


def _watched(pruning: NoPruning, entry: Entry) -> AbstractContextManager[None]:
    """A context in which another thread watches the job for pruning, since this one waits for it."""
    return in_background(partial(_watch, pruning, entry), name="pruning") if pruning.watches else nullcontext()


def _watch(pruning: NoPruning, entry: Entry, done: threading.Event) -> None:
    while not done.wait(WATCH_SECONDS):
        pruning.watch([entry])


def conclude(ledger: Ledger, *, every_job: bool) -> None:
    """Print the outcome of the jobs, and update the comparison. ``every_job``: also print its table."""
    if not (entries := ledger.entries()):
        return
    if any(entry.state not in ("pending", "running", "interrupted") for entry in entries):  # which takes seconds
        refresh(Path(str(RunFolder(ledger.sweep))), quiet=not every_job)  # named as a person would
    console.outcome(ledger)


def end_as(ledger: Ledger) -> None:
    """Raises Ended with exit code 1 if a job failed, or with 2 if none ran and all that failed were refused.

    Skipped jobs do not count as failures. Without a ledger, nothing was to be run.
    """
    entries = ledger.entries() if ledger.exists() else []
    entries = [entry for entry in entries if entry.state in ("completed", "failed")]
    if any(entry.state == "failed" for entry in entries):
        refused = all(_was_refused(entry, ledger) for entry in entries)
        raise Ended(ExitCode.REFUSED if refused else ExitCode.FAILED)


def _was_refused(entry: Entry, ledger: Ledger) -> bool:
    """Whether the job's config was refused; a job whose config was corrected later has a result."""
    return entry.signature is None and not RunFolder(ledger.sweep / entry.folder).result.exists()
