"""Runs what is frozen in a run folder, up to its result.json."""

import logging
import sys
import time
from collections.abc import Mapping
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from functools import partial

from manyheads.launchers import warm_server
from manyheads.launchers.environment import PROJECT, environment, flight_recorder
from manyheads.launchers.events import events
from manyheads.launchers.launcher import TRAIN, Job, Launcher
from manyheads.launchers.load import gpu_load, host_load
from manyheads.launchers.mirroring import mirrored
from manyheads.launchers.publishing.publishers import publishers
from manyheads.launchers.result import finish
from manyheads.runner.errors import ConfigurationError, Failure, Interrupted, RunFailed, complain
from manyheads.runner.machine import hardware, invocation
from manyheads.runner.machine.process import received_signals
from manyheads.runner.option.declared import GROUPS
from manyheads.runner.option.locate import targets
from manyheads.runner.option.run_config import RunConfig
from manyheads.runner.provenance import predicted
from manyheads.runner.provenance.provenance import record
from manyheads.runner.run.files import disk_full, remove
from manyheads.runner.run.heartbeat import Heartbeat
from manyheads.runner.run.json_types import ResultJson
from manyheads.runner.run.progress import keeping
from manyheads.runner.run.run_folder import RunFolder

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class LaunchPlan:
    """A run that is ready to start: its folder and config, read once; its launcher; the variable that pins the config.

    Ranks refuse a run.yaml other than the one that ``pinned`` names. ``apart``: no rank may train in this process.
    """

    folder: RunFolder
    run: RunConfig
    launcher: Launcher
    pinned: Mapping[str, str]
    apart: bool


def prepare(folder: RunFolder, *, apart: bool = False) -> LaunchPlan:
    """Plan to run, or resume, what is frozen in ``folder``, and start slow preparations in the background.

    ``apart``: no rank may train in this process, because it has other jobs to do and must survive this one. Raises
    ConfigurationError.
    """
    folder.refuse_other_format()
    pinned = folder.pin_config()
    run = RunConfig.read(folder)
    launcher = _launcher(run)
    launcher = launcher.as_child_process() if apart else launcher
    launcher.prepare(environment(launcher), _imports(run, apart=apart))
    warm_server.end_waiting()  # unless the launcher has told it to continue
    return LaunchPlan(folder, run, launcher, pinned, apart)


def refuse_early(run: RunConfig) -> None:
    """Check what ranks would refuse only much later, or because of the user's own classes. Raises ConfigurationError.

    Other runs are refused within a second by their ranks, or by a check beside them (``run_agent``), and leave no run.
    """
    launcher = _launcher(run)
    variables = environment(launcher)
    launcher.prepare(variables, _imports(run))
    if launcher.begins_later or (launcher.warm and _names_own_code(run)):
        warm_server.check(run, variables)
    if launcher.begins_later:
        warm_server.stop()


def _imports(run: RunConfig, *, apart: bool = False) -> list[str]:
    """The modules of this project and of torchvision that the run's options name, except options on other libraries.

    ``apart``: this process has other jobs, which may need torchvision.
    """
    entries = (each for each in run.logger.values() if not each.publishes)
    options = (*(getattr(run, group) for group in GROUPS if group != "launcher"), *entries)
    used = [each for each in options if not each.installed()]
    named = [str(target) for each in used for _, target in targets(each.section)]
    modules = [name.rpartition(".")[0] for name in named if name.startswith(("manyheads.", "torchvision."))]
    slow = [name for each in used for name in each.imports]
    return [*modules, *slow, *(["torchvision"] if apart else [])]


def _launcher(run: RunConfig) -> Launcher:
    launcher: Launcher = run.launcher.kind(name=run.launcher.name, **run.launcher.arguments())
    return launcher


def launch(plan: LaunchPlan, *, main: str = TRAIN, composed_from: str | None = None) -> ResultJson:
    """Carry out the plan; returns the content of the run's result.json.

    Raises RunFailed, ConfigurationError or Interrupted, after result.json was written. ``main``: the module whose
    main(folder) is a rank; only for a plan made with ``apart``. ``composed_from``: the saved config that the run's
    config was composed from.
    """
    folder, launcher = plan.folder, plan.launcher
    is_untried = folder.is_planned() and main == TRAIN and not plan.apart and _names_own_code(plan.run)
    if folder.is_planned():  # the first start, or an earlier one was killed before this line
        with folder.locked():
            record(folder, plan.run, composed_from=composed_from)
    watched = events(folder, plan.run) if main == TRAIN else nullcontext()
    kept = f"resume it with: {invocation.command('resume', folder)}" if main == TRAIN else ""
    with keeping("run", kept), received_signals(hang_ups=not launcher.is_elsewhere) as signals, watched:
        if launcher.is_elsewhere:
            if main != TRAIN:
                raise ConfigurationError.at("launcher", launcher.name, " can only train from here. Choose another.")
            return launcher.launch_elsewhere(folder, plan.run, signals)
        try:
            result = _launch_here(plan, signals, main=main, is_untried=is_untried)
            if main == TRAIN:
                predicted.note(folder)
            return result
        except (RunFailed, Interrupted) as reason:
            launcher.ended(folder, reason)
            raise


def _names_own_code(run: RunConfig) -> bool:
    """Whether the run names classes of the user; the options have checked those of this project and of torch."""
    return any(not target.startswith(("manyheads.", "torch.", "auto")) for _, target in targets(run.written))


def _launch_here(plan: LaunchPlan, signals: list[int], *, main: str, is_untried: bool) -> ResultJson:
    folder, run, launcher = plan.folder, plan.run, plan.launcher
    with folder.locked():
        if main == TRAIN:
            from manyheads.runner.logger.terminal import Terminal  # slow; the ranks import meanwhile

            Terminal().header({"run": str(folder)})  # ranks print the rest once they have imported torch
        sys.path += [each for each in PROJECT if each not in sys.path]
        folder.clear_attempt()
        spread = launcher.settings is not None
        create = partial(Heartbeat, None) if spread else partial(Heartbeat.create, folder.heartbeat)
        heartbeat = create(ranks=launcher.ranks)
        recorder = flight_recorder(folder) if run.on_gpus else {}
        variables = {**environment(launcher), **plan.pinned, **recorder}
        common = folder, launcher.ranks, variables, heartbeat, signals, launcher.timeout, main
        job, planned = Job(*common, run=run, is_untried=is_untried), run.as_planned
        log.info("%s: %d x %s by %s", folder, launcher.ranks, run.parallel.name, launcher.name)
        trains = main == TRAIN
        learns = trains and not run.trainer.evaluate_only
        with (
            mirrored(folder, run.checkpoint, variables, signals) if learns else nullcontext(),
            publishers(folder, run.logger, variables, signals) if trains else nullcontext(),
        ):
            try:
                gpus = hardware.gpu_indices()[: run.gpus_here]
                watched = host_load(folder.host) if main == TRAIN else nullcontext()
                with watched, gpu_load(folder.gpu, gpus):
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
