"""Runs and resumes the jobs of a sweep, recording each change of state in the ledger first, and concludes it.

The conclusion of a sweep, or of one of its batches, is the outcome of its jobs, the comparison and the exit code.
Jobs are resumed from the folders in which they were frozen, without Hydra.
"""

import threading
from collections.abc import Iterator, Sequence
from contextlib import nullcontext, suppress
from functools import partial
from pathlib import Path

from omegaconf import DictConfig, OmegaConf

from manyheads.launchers.launch import launch, prepare
from manyheads.launchers.sweep import console
from manyheads.launchers.sweep.comparison import is_current, refresh
from manyheads.launchers.sweep.devices import jobs_at_once
from manyheads.launchers.sweep.job_progress import JobProgress, Start, run_job
from manyheads.launchers.sweep.pruning import NoPruning
from manyheads.launchers.sweep.slots import Slots
from manyheads.launchers.sweep.sweep_options import Options
from manyheads.runner.config.freeze import freeze
from manyheads.runner.config.fresh_folder import SWEEP_DIR
from manyheads.runner.config.quoting import quoted
from manyheads.runner.errors import ConfigurationError, Ended, ExitCode
from manyheads.runner.machine import invocation
from manyheads.runner.machine.process import handled_by, in_background, interrupt
from manyheads.runner.provenance.copies import import_copies
from manyheads.runner.provenance.started_in import find_where_started, refuse_open_place
from manyheads.runner.run import seal
from manyheads.runner.run.data_files import log_file
from manyheads.runner.run.ledger import Entry, Ledger
from manyheads.runner.run.progress import keeping
from manyheads.runner.run.run_folder import RunFolder
from manyheads.runner.trust.admit import admit_job, admit_jobs, admit_run, door

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
            watch = partial(_watch, progress.pruning, entry)  # in another thread, since this one waits for the job
            with in_background(watch, name="pruning") if progress.pruning.watches else nullcontext():
                done = run_job(entry, start)
            progress.ended(done)


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


DONE = ("completed", "pruned")


def command_of(sweep: Path) -> list[str] | None:
    """The arguments of the command that resumes the user's own sweep, if its jobs' folders alone do not suffice.

    That is a search, or a sweep that was killed while it was being planned. None for all others. Raises
    ConfigurationError for a ledger that cannot be read.
    """
    ledger = Ledger(sweep)
    if not ledger.exists() or not seal.is_own(ledger.sweep, sealed := ledger.sealed_part()):
        return None
    if (arguments := ledger.restarting(sealed)) is None:
        return None
    return [*(word for word in arguments if not word.startswith(SWEEP_DIR)), f"{SWEEP_DIR}{quoted(ledger.sweep)}"]


def resume(sweep: Path, packages: Sequence[str] = ()) -> None:
    """Run the jobs that are not completed, resuming those that were interrupted.

    ``packages``: trusted by the user. Raises ConfigurationError, Interrupted, and Ended if a job failed.
    """
    ledger = Ledger(sweep)
    with ledger.locked():
        options, jobs = Options.of(ledger.options()), ledger.entries()
        options.check()
        entries = [entry for entry in jobs if entry.state not in DONE]
        if jobs and not entries and is_current(ledger.path):  # comparing a thousand jobs again takes seconds
            print(
                f"{RunFolder(sweep)} is already complete. `{invocation.command('report', RunFolder(sweep))}` shows it."
            )
            console.outcome(ledger)
            return
        admit_jobs(ledger.sweep, [entry.folder for entry in entries], packages)
        find_where_started(*(RunFolder(ledger.sweep / entry.folder) for entry in jobs))
        import_copies(*(RunFolder(ledger.sweep / entry.folder) for entry in entries))
        slots = jobs_at_once(options.jobs, list(_configs(ledger.sweep, entries, packages)))
        try:
            run_jobs(entries, ledger, options, lambda entry: resume_job(entry, ledger, options, packages), slots=slots)
        finally:
            conclude(ledger, every_job=True)
        end_as(ledger)


def finish(ledger: Ledger, entries: list[Entry], pruning: NoPruning) -> None:
    """Run the jobs of the user's own search that are neither completed nor pruned.

    Raises Interrupted, and ConfigurationError for a job that is not the user's own, and for files that others can
    replace: later trials import the same ones.
    """
    begun = [entry for entry in entries if entry.state not in DONE]
    for config in _configs(ledger.sweep, [*entries[:1], *begun]):
        refuse_open_place(config)
    if not begun:
        return
    with ledger.locked():
        options = Options.of(ledger.options())
        admit_jobs(ledger.sweep, [entry.folder for entry in begun])
        slots = jobs_at_once(options.jobs, list(_configs(ledger.sweep, begun)))
        start = partial(resume_job, ledger=ledger, options=options)
        try:
            run_jobs(begun, ledger, options, start, slots=slots, pruning=pruning)
        finally:
            conclude(ledger, every_job=False)


def resume_job(entry: Entry, ledger: Ledger, options: Options, packages: Sequence[str] = ()) -> float | None:
    """Start or resume one job in this process; returns its objective. Raises as ``launch`` does."""
    folder = RunFolder(ledger.sweep / entry.folder)
    if (result := folder.completed()) is not None:
        return result.get("objective")
    with log_file(folder.log):
        if not folder.config.exists():  # it was refused; what it lacked may be available now
            config, trust = admit_job(folder, ledger.sweep, packages)
            refuse_open_place(config)  # it has no copies
            freeze(folder, OmegaConf.create(config), admit=door(trust), timeout=options.timeout)
        admit_run(folder, packages)  # again: the folder may have changed meanwhile
        return launch(prepare(folder, apart=True))["objective"]


def _configs(sweep: Path, entries: list[Entry], packages: Sequence[str] = ()) -> Iterator[DictConfig]:
    """The configs of jobs whose folders still exist; the others fail when their turn comes."""
    for entry in entries:
        with suppress(ConfigurationError):
            yield OmegaConf.create(admit_job(RunFolder(sweep / entry.folder), sweep, packages)[0])
