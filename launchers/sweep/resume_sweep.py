"""Resume the jobs of a sweep from the folders in which they were frozen, without Hydra."""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path

from omegaconf import DictConfig, OmegaConf

from manyheads.launchers.launch import launch, prepare
from manyheads.launchers.sweep import console
from manyheads.launchers.sweep.comparison import is_current
from manyheads.launchers.sweep.devices import jobs_at_once
from manyheads.launchers.sweep.pruning import NoPruning
from manyheads.launchers.sweep.run_jobs import conclude, end_as, run_jobs
from manyheads.launchers.sweep.sweep_options import Options
from manyheads.runner.config.freeze import freeze
from manyheads.runner.config.fresh_folder import SWEEP_DIR
from manyheads.runner.config.quoting import quoted
from manyheads.runner.errors import ConfigurationError
from manyheads.runner.machine import invocation
from manyheads.runner.provenance.copies import import_copies
from manyheads.runner.provenance.started_in import find_where_started, refuse_open_place
from manyheads.runner.run import seal
from manyheads.runner.run.data_files import log_file
from manyheads.runner.run.ledger import Entry, Ledger
from manyheads.runner.run.run_folder import RunFolder
from manyheads.runner.trust.admit import admit_job, admit_jobs, admit_run, door

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
