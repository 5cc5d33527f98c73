"""From a frozen run folder to its result."""

import logging
import sys
import time
from contextlib import nullcontext, suppress
from functools import partial
from typing import Any

from manyheads.launchers.base import TRAIN, Job, Launcher
from manyheads.launchers.environment import PROJECT, environment, flight_recorder
from manyheads.launchers.load.gpu import gpu_load
from manyheads.launchers.load.host import host_load
from manyheads.launchers.publishers import publishers
from manyheads.launchers.signals import received_signals
from manyheads.runner.config.complete import fits, gpus_used
from manyheads.runner.machine import hardware
from manyheads.runner.provenance.record import record
from manyheads.runner.run.errors import ConfigurationError, Interrupted, RunFailed, complain
from manyheads.runner.run.failure import Failure
from manyheads.runner.run.files import disk_full
from manyheads.runner.run.heartbeat import Heartbeat
from manyheads.runner.run.locate import OPTION, TARGET, locate
from manyheads.runner.run.result import finish
from manyheads.runner.run.run_folder import RunFolder

log = logging.getLogger(__name__)


def launch(
    folder: RunFolder, *, apart: bool = False, main: str = TRAIN, composed_from: str | None = None
) -> dict[str, Any]:
    """Run, or resume, the run that is frozen in ``folder``; returns the content of its result.json.

    Raises RunFailed, ConfigurationError or Interrupted, after writing that result.json. ``apart``: no rank may train in
    this process, because it has other jobs to do and must survive this one. ``main``: the module whose main(folder) is
    a rank; only with ``apart``. ``composed_from``: the saved config that its config was composed from.
    """
    folder.refuse_other_format()
    folder.pin_config()
    config = folder.read_config()
    launcher = _launcher(config, apart=apart)
    if folder.is_planned():  # for the first time, or an earlier start was killed before this
        with folder.locked():
            record(folder, config, composed_from=composed_from)
    with received_signals() as signals:
        if launcher.is_elsewhere:
            if main != TRAIN:
                raise ConfigurationError(f"launcher={launcher.name} can only train from here. Choose another.")
            return launcher.launch_elsewhere(folder, signals)
        try:
            return _launch_here(launcher, folder, signals, main=main)
        except (RunFailed, Interrupted) as reason:
            launcher.ended(folder, reason)
            raise


def _launch_here(launcher: Launcher, folder: RunFolder, signals: list[int], *, main: str) -> dict[str, Any]:
    with folder.locked():
        pinned = folder.pin_config()
        config = folder.read_config()
        sys.path += [each for each in PROJECT if each not in sys.path]
        folder.clear_attempt()
        spread = launcher.settings is not None
        create = partial(Heartbeat, None) if spread else partial(Heartbeat.create, folder.heartbeat)
        heartbeat = create(ranks=launcher.ranks)
        variables = {**environment(launcher), **pinned, **flight_recorder(config, folder)}
        common = folder, launcher.ranks, variables, heartbeat, signals, launcher.timeout, main
        job = Job(*common, fits=partial(fits, config))
        log.info("%s: %d x %s by %s", folder, launcher.ranks, config["parallel"]["name"], launcher.name)
        with publishers(folder, config, variables, signals) if main == TRAIN else nullcontext():
            try:
                gpus = hardware.gpu_indices()[: gpus_used(config)]
                watched = host_load(folder.host) if main == TRAIN else nullcontext()
                with watched, gpu_load(folder.gpu, gpus):
                    launcher.launch(job)
            except (RunFailed, ConfigurationError, Interrupted) as reason:
                _note("%s: %s", folder, reason)  # which the terminal is told at the very end
                _finish(job, config, reason)
                raise
            finally:
                with suppress(OSError):  # of the disk, which may be what ended the run
                    folder.heartbeat.unlink(missing_ok=True)
            return _finish(job, config)


def prepare(config: dict[str, Any], *, apart: bool = False) -> None:
    """Start the slow preparations for launching this config's run in the background; returns at once."""
    launcher = _launcher(config, apart=apart)
    launcher.prepare(environment(launcher))


def _launcher(config: dict[str, Any], *, apart: bool) -> Launcher:
    section = config["launcher"]
    kind = locate("launcher", section["_target_"])
    launcher = kind(**{key: value for key, value in section.items() if key not in (TARGET, OPTION)})
    return launcher.apart() if apart else launcher


def _finish(job: Job, config: dict[str, Any], reason: BaseException | None = None) -> dict[str, Any]:
    try:
        result = finish(job.folder, config, time.monotonic() - job.started, reason, job.added)
    except OSError as error:
        why = f"the disk of {job.folder} is full" if disk_full(error) else f"{job.folder}: {error.strerror}"
        message = f"{why}, so {job.folder.result.name}, which records how the run ended, could not be written."
        if reason is None:
            raise RunFailed(Failure(type=type(error).__name__, message=message)) from error
        complain(message)  # and the reason remains what ended the run
        return {}
    _note("%s: %s after %.1f s", job.folder, result["status"], result["wall_seconds"])
    return result


def _note(message: str, *values: object) -> None:
    """Into the log, where its disk takes it; ``_finish`` says where it does not."""
    before, logging.raiseExceptions = logging.raiseExceptions, False
    try:
        log.info(message, *values)
    finally:
        logging.raiseExceptions = before
