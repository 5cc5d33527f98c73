"""A batch of jobs for a Hydra sweeper: planned, run, and their results returned."""

import os
import sys
from collections.abc import Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from statistics import fmean

from hydra import version
from hydra.core.utils import JobReturn, JobStatus, configure_log, run_job, setup_globals
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig, OmegaConf

from manyheads.launchers.companions import refuse_start
from manyheads.launchers.sweep import console
from manyheads.launchers.sweep.comparison import answer_if_any
from manyheads.launchers.sweep.devices import are_placed, jobs_at_once, on_cores, shares_of_cores
from manyheads.launchers.sweep.plan import (
    PlannedJob,
    compose,
    decided,
    refuse_wrong_values,
    saved,
)
from manyheads.launchers.sweep.pruning import NoPruning
from manyheads.launchers.sweep.run_jobs import conclude, resume_job, run_jobs
from manyheads.launchers.sweep.sweep_options import Options, check_used, combinations
from manyheads.runner.config.composing import RememberingLoader
from manyheads.runner.config.fresh_folder import BASIC_SWEEPER
from manyheads.runner.config.hydra_version import VERSION_BASE
from manyheads.runner.config.origin import Origin
from manyheads.runner.config.schema import is_run_config, without_hydra
from manyheads.runner.errors import BudgetSpent, ConfigurationError, Unavailable, report
from manyheads.runner.machine import invocation
from manyheads.runner.machine.process import handled_by, interrupt
from manyheads.runner.run import progress, seal
from manyheads.runner.run.data_files import without_collector
from manyheads.runner.run.files import remove, remove_if_empty
from manyheads.runner.run.ledger import Entry, Ledger
from manyheads.runner.run.run_folder import LEDGER, RunFolder
from manyheads.runner.wording import counted

NOTHING_MEASURED = (
    "job {} measured nothing that a search could optimize. Set trainer.evaluate_every=1, so that there is an "
    "evaluation, or checkpoint.monitor to something that the task measures."
)


class JobBatch:
    """Jobs whose results a sweeper needs. The basic sweeper has one batch, a search has many."""

    def __init__(
        self,
        context: HydraContext,
        task: TaskFunction,
        config: DictConfig,
        options: Options,
        *,
        pruning: NoPruning | None = None,
    ):
        self._is_search, self._pruning = pruning is not None, pruning or NoPruning()
        self._context, self._task, self._config, self._options = context, task, config, options
        self._origin = Origin.of(task)
        self._basic = config.hydra.sweeper._target_ == BASIC_SWEEPER
        self._ledger = Ledger(Path(str(config.hydra.sweep.dir)))
        self._origin.answers.append(partial(answer_if_any, self._ledger.sweep))
        self._jobs: dict[tuple[int, int], PlannedJob] = {}
        self._returns: dict[tuple[int, int], JobReturn] = {}

    def run(self, overrides: Sequence[Sequence[str]], first: int) -> list[JobReturn]:
        """Run the jobs. Raises ConfigurationError, and Interrupted when a signal stopped the sweep."""
        setup_globals()
        configure_log(self._config.hydra.hydra_logging, self._config.hydra.verbose)
        if self._options.dry_run:
            return self._show(overrides, first)
        self._refuse_start()
        planned = self._plan(overrides, first)
        if not planned and not self._ledger.entries():
            console.all_excluded()
            self._leave_nothing()
            return []
        with self._ledger.locked():  # again: the locked file was replaced by one with the new jobs
            entries = self._run(planned)
        conclude(self._ledger, every_job=self._basic)
        return [self._return(job, entries) for job in range(first, first + len(overrides))]

    def _refuse_start(self) -> None:
        try:
            refuse_start(self._ledger.sweep)
        except BudgetSpent:
            self._leave_nothing()
            raise

    def _show(self, overrides: Sequence[Sequence[str]], first: int) -> list[JobReturn]:
        """Only show what would be run."""
        try:
            console.show_plan(self._decided(self._compose(overrides, first)))
        finally:
            self._leave_nothing()
        return []

    @without_collector()
    def _plan(self, overrides: Sequence[Sequence[str]], first: int) -> list[PlannedJob]:
        """Compose the jobs and add them to the ledger, created first so that killed planning can be repeated."""
        if not self._ledger.exists():
            self._ledger.create(asdict(self._options), arguments=sys.argv[1:], is_search=self._is_search)
        kept = f"no job was started; resume it with: {invocation.command('resume', RunFolder(self._ledger.sweep))}"
        with self._ledger.locked(), progress.keeping("planning", kept), handled_by(interrupt):
            try:
                planned = self._decided(self._compose(overrides, first))
                return self._note([job for job in planned if not job.excluded])
            except OSError:  # such as a full disk, after which the sweep can be resumed
                raise
            except Exception:
                self._leave_nothing()
                raise

    def _slots(self, planned: list[PlannedJob]) -> int:
        return jobs_at_once(self._options.jobs, [job.config for job in planned if not job.excluded])

    @without_collector()
    def _compose(self, overrides: Sequence[Sequence[str]], first: int) -> list[PlannedJob]:
        loader = self._context.config_loader
        assert isinstance(loader, RememberingLoader)
        composed = compose(loader, self._config, overrides, first, self._options, self._origin)
        count = len(overrides) * self._options.repeat
        planned = list(progress.each(composed, f"composing {counted(count, 'job')}", total=count))
        if not self._basic and (self._options.dry_run or self._options.exclude):
            key = "dry_run" if self._options.dry_run else "exclude"
            message = f"hydra.launcher.{key} works with hydra/sweeper=manyheads only. Leave it out."
            raise ConfigurationError(message, key=f"hydra.launcher.{key}")
        if self._options.interleave:
            planned.sort(key=lambda job: job.entry.repeat)
        for job in planned if not self._basic else ():
            refuse_without_objective(job.config)
        check_used(combinations(self._options.exclude), [job.config for job in planned])
        return planned

    @without_collector()
    def _decided(self, planned: list[PlannedJob]) -> list[PlannedJob]:
        """The jobs with their run configs, in which ``auto`` is resolved for the cores that a job will have."""
        placed = are_placed([job.config for job in planned if not job.excluded])
        slots = 1 if placed else self._slots(planned)
        with on_cores(shares_of_cores(slots)[0]):
            checked = (decided(job, self._options, self._origin) for job in planned)
            planned = list(progress.each(checked, f"checking {counted(len(planned), 'job')}", total=len(planned)))
        if self._basic:
            refuse_wrong_values(planned)
        return planned

    def _note(self, planned: list[PlannedJob]) -> list[PlannedJob]:
        """Freeze the jobs and add them to the ledger: from now on they can be resumed from their folders."""
        folders = {entry.folder for entry in self._ledger.entries()}
        for job in planned:
            if job.entry.folder not in folders and not job.entry.folder.startswith(".."):
                job.folder.remove_plan()  # of an earlier process that was killed
        noted = progress.each(planned, f"writing {counted(len(planned), 'job')}")
        planned = [saved(job, is_own=self._origin.trust is None) for job in noted]  # others' are checked in part
        self._ledger.add(*(job.entry for job in planned))
        return planned

    def _leave_nothing(self) -> None:
        """Remove what was written for a sweep that has no jobs."""
        if self._ledger.exists() and self._ledger.entries():
            return
        for name in ("multirun.yaml", LEDGER, seal.NAME):
            remove(self._ledger.sweep / name)
        remove_if_empty(self._ledger.sweep)

    def _run(self, planned: list[PlannedJob]) -> list[Entry]:
        self._jobs = {(job.entry.job, job.entry.repeat): job for job in planned}
        for job in planned:
            if job.error is not None and not isinstance(job.error, Unavailable):
                report(job.error)
        refused = [job.entry for job in planned if job.error is not None]
        waiting = [job.entry for job in planned if job.error is None]
        try:
            return refused + run_jobs(
                waiting, self._ledger, self._options, self._start, slots=self._slots(planned), pruning=self._pruning
            )
        except BaseException:
            conclude(self._ledger, every_job=False)
            raise

    def _start(self, entry: Entry) -> object:
        """Run one job in this process, as Hydra would."""
        if entry.split > 1:
            return resume_job(entry, self._ledger, self._options)
        result = run_job(
            hydra_context=self._context,
            task_function=self._task,
            config=self._jobs[entry.job, entry.repeat].config,
            job_dir_key="hydra.sweep.dir",
            job_subdir_key="hydra.sweep.subdir",
        )
        configure_log(self._config.hydra.hydra_logging, self._config.hydra.verbose)
        self._returns[entry.job, entry.repeat] = result
        if result.status == JobStatus.FAILED:
            raise result._return_value
        return result.return_value

    def _return(self, job: int, entries: list[Entry]) -> JobReturn:
        """The job's result, as the mean over its repeats.

        The basic sweeper would stop at the first failed job, so failures are hidden from it; other sweepers see them.
        """
        mine = [entry for entry in entries if entry.job == job]
        bad = [entry for entry in mine if entry.state != "completed"]
        if not mine:  # excluded
            return JobReturn(overrides=[], status=JobStatus.COMPLETED)
        planned = self._jobs[job, 1]
        result = self._returns.get((job, 1)) or _unfinished(planned)
        if bad and not (self._basic and is_run_config(planned.config)):
            if result.status != JobStatus.FAILED:
                result.status, result.return_value = JobStatus.FAILED, RuntimeError(bad[0].reason)
            return result
        objectives = [entry.objective for entry in mine if entry.objective is not None]
        if bad:
            result.return_value = None
        elif objectives:
            result.return_value = fmean(objectives)
        elif not self._basic and is_run_config(planned.config):
            result.status, result.return_value = JobStatus.FAILED, ConfigurationError(NOTHING_MEASURED.format(job))
            return result
        result.status = JobStatus.COMPLETED
        return result


def refuse_without_objective(config: DictConfig) -> None:
    """Raises ConfigurationError for a run config that measures nothing a search could optimize."""
    if is_run_config(config) and not config.trainer.evaluate_every and not config.trainer.evaluate_only:
        raise ConfigurationError.at(
            "trainer.evaluate_every", 0, " measures nothing that a search could optimize. Set trainer.evaluate_every=1."
        )


def _unfinished(planned: PlannedJob) -> JobReturn:
    """The result of a job that ran in another process, or not at all; without its return value."""
    composed = planned.config
    chdir = composed.hydra.job.chdir
    if chdir is None and VERSION_BASE:
        chdir = not version.base_at_least("1.2")
    return JobReturn(
        overrides=list(composed.hydra.overrides.task),
        cfg=without_hydra(composed),
        hydra_cfg=OmegaConf.masked_copy(composed, "hydra"),
        working_dir=str(planned.folder.path) if chdir else os.getcwd(),
        task_name=composed.hydra.job.name,
    )
