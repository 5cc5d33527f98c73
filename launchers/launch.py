"""Runs what is frozen in a run folder, up to its result.json."""

import logging
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial

from manyheads.launchers.companions import Accompanied, Span, refuse_start
from manyheads.launchers.environment import PROJECT, environment
from manyheads.launchers.job import TRAIN, Job
from manyheads.launchers.launcher import Launcher
from manyheads.launchers.result import finish
from manyheads.runner.errors import ConfigurationError, Failure, Interrupted, RunFailed, complain
from manyheads.runner.machine import invocation
from manyheads.runner.machine.process import received_signals
from manyheads.runner.option.declared import GROUPS
from manyheads.runner.option.run_config import RunConfig
from manyheads.runner.option.tree import targets
from manyheads.runner.run.files import disk_full, remove
from manyheads.runner.run.heartbeat import Heartbeat
from manyheads.runner.run.json_types import ResultJson
from manyheads.runner.run.progress import keeping
from manyheads.runner.run.run_folder import RunFolder

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Start:
    """A checked config and its launcher, which has begun slow preparations in the background.

    ``variables``: the ranks' environment. ``apart``: no rank may train in this process.
    """

    run: RunConfig
    launcher: Launcher
    variables: Mapping[str, str]
    apart: bool

    @classmethod
    def of(cls, run: RunConfig, *, apart: bool = False) -> "Start":
        """Let the launcher of ``run`` begin. ``apart``: this process has other jobs. Raises ConfigurationError."""
        launcher = run.launcher.started(apart=apart)
        variables = environment(launcher)
        launcher.prepare(variables, _imports(run, apart=apart))
        return cls(run, launcher, variables, apart)

    def refuse_early(self) -> None:
        """Check what ranks would refuse only much later, or because of the user's own classes.

        Other runs are refused within a second by their ranks, or by a check beside them (``run_agent``), and leave no
        run. Raises ConfigurationError.
        """
        self.launcher.refuse_early(self.run, self.variables)

    def planned(self, folder: RunFolder) -> "LaunchPlan":
        """The plan to run what is frozen in ``folder``, which is this config."""
        return LaunchPlan(folder, self, {**self.variables, **folder.pin_config()})


@dataclass(frozen=True)
class LaunchPlan:
    """A run that is ready to start. ``variables``: the ranks' environment, by which they refuse another run.yaml."""

    folder: RunFolder
    start: Start
    variables: Mapping[str, str]


def prepare(folder: RunFolder, *, apart: bool = False) -> LaunchPlan:
    """Plan to run, or resume, what is frozen in ``folder``. ``apart``, errors: those of ``Start.of``."""
    folder.refuse_other_format()
    folder.pin_config()
    return Start.of(RunConfig.read(folder), apart=apart).planned(folder)


def _imports(run: RunConfig, *, apart: bool = False) -> list[str]:
    """The modules of this project and of torchvision that the run's options name, except options on other libraries.

    ``apart``: this process has other jobs, which may need torchvision.
    """
    entries = (section for section in run.logger.values() if not section.publishes)
    options = (*(getattr(run, group) for group in GROUPS if group != "launcher"), *entries)
    used = [option for option in options if not option.installed()]
    named = [str(target) for option in used for _, target in targets(option.section)]
    modules = [name.rpartition(".")[0] for name in named if name.startswith(("manyheads.", "torchvision."))]
    slow = [name for option in used for name in option.imports]
    return [*modules, *slow, *(["torchvision"] if apart else [])]


def launch(plan: LaunchPlan, *, main: str = TRAIN, composed_from: str | None = None) -> ResultJson:
    """Carry out the plan; returns the content of the run's result.json.

    Raises RunFailed, ConfigurationError or Interrupted, after writing result.json. ``main``: the module whose ``main``
    is a rank, for a plan made with ``apart``. ``composed_from``: the saved config that the run's was composed from.
    """
    folder, run, launcher = plan.folder, plan.start.run, plan.start.launcher
    refuse_start(folder.path)
    trains = main == TRAIN
    is_untried = folder.is_planned() and trains and not plan.start.apart and run.names_own_code
    with Accompanied(folder, run, trains, composed_from=composed_from).with_companions(Span.FIRST):
        pass
    kept = f"resume it with: {invocation.command('resume', folder)}" if trains else ""
    with keeping("run", kept), received_signals(hang_ups=not launcher.is_elsewhere) as signals:
        accompanied = Accompanied(folder, run, trains, dict(plan.variables), signals)
        with accompanied.with_companions(Span.COMMAND):
            if launcher.is_elsewhere:
                if not trains:
                    raise ConfigurationError.at("launcher", launcher.name, " can only train from here. Choose another.")
                return launcher.launch_elsewhere(folder, run, signals)
            try:
                return _launch_here(launcher, accompanied, main=main, is_untried=is_untried)
            except (RunFailed, Interrupted) as reason:
                launcher.ended(folder, reason)
                return accompanied.outcome(reason)


def _launch_here(launcher: Launcher, accompanied: Accompanied, *, main: str, is_untried: bool) -> ResultJson:
    folder, run = accompanied.folder, accompanied.run
    with folder.locked():
        if accompanied.trains:
            from manyheads.runner.logger.terminal import Terminal  # slow; the ranks import meanwhile

            Terminal().header({"run": str(folder)})  # ranks print the rest once they have imported torch
        sys.path += [path for path in PROJECT if path not in sys.path]
        folder.clear_attempt()
        create = partial(Heartbeat, None) if launcher.settings else partial(Heartbeat.create, folder.heartbeat)
        heartbeat = create(ranks=launcher.ranks)
        variables = {**accompanied.variables, **heartbeat.variables}
        common = folder, launcher.ranks, variables, heartbeat, accompanied.signals, launcher.timeout, main
        job, planned = Job(*common, run=run, is_untried=is_untried), run.as_planned
        log.info("%s: %d x %s by %s", folder, launcher.ranks, run.parallel.name, launcher.name)
        with accompanied.with_companions(Span.STORED, Span.RUN):
            try:
                with replace(accompanied, heartbeat=heartbeat).with_companions(Span.RANKS):
                    launcher.launch(job)
            except (RunFailed, ConfigurationError, Interrupted) as reason:
                _note("%s: %s", folder, reason)  # the terminal shows it at the very end
                _finish(job, planned, reason)
                raise
            finally:
                with suppress(OSError):  # a disk error may be what ended the run
                    remove(folder.heartbeat)
            return _finish(job, planned)


def _finish(job: Job, planned: ResultJson, reason: BaseException | None = None) -> ResultJson:
    try:
        result = finish(job.folder, planned, time.monotonic() - job.started, reason, job.added)
    except OSError as error:
        why = f"the disk of {job.folder} is full" if disk_full(error) else f"{job.folder}: {error.strerror}"
        message = f"{why}, so {job.folder.result.name}, which records how the run ended, could not be written."
        if reason is None:
            raise RunFailed(Failure(type=type(error).__name__, message=message)) from error
        complain(message)  # ``reason`` is raised
        return {}
    _note("%s: %s after %.1f s", job.folder, result["status"], result["wall_seconds"])
    return result


def _note(message: str, *values: object) -> None:
    """Write to the log; if its disk is full, ``_finish`` says so."""
    before, logging.raiseExceptions = logging.raiseExceptions, False
    try:
        log.info(message, *values)
    finally:
        logging.raiseExceptions = before
