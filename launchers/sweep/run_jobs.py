"""Run the jobs of a sweep, recording each change of state in the ledger first."""

import threading
from contextlib import AbstractContextManager, nullcontext
from functools import partial

from manyheads.launchers.sweep.job_progress import JobProgress, Start, run_job
from manyheads.launchers.sweep.pruning import NoPruning
from manyheads.launchers.sweep.slots import Slots
from manyheads.launchers.sweep.sweep_options import Options
from manyheads.runner.errors import Interrupted
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
            raise Interrupted(progress.interrupted)
    return progress.entries()


def _run_here(progress: JobProgress, start: Start) -> None:
    with handled_by(interrupt):  # outside of jobs; a running job handles its signals itself
        while entry := progress.next():
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
