"""Assembles a rank from the run config, and what records the run, in the one order that satisfies every backend."""

from collections.abc import Callable
from functools import partial

import torch

from manyheads.runner.checkpoint.retention import steps_of
from manyheads.runner.errors import ConfigurationError
from manyheads.runner.logger.logger import Guarded, LoggedRun, Logger
from manyheads.runner.logger.run_log import Both, log_display
from manyheads.runner.logger.terminal import Display, Terminal
from manyheads.runner.loop.assembly import assemble
from manyheads.runner.loop.build_observers import ModelDescription, build_observers
from manyheads.runner.loop.determinism import set_deterministic
from manyheads.runner.loop.guards.build_guards import guards_of_record
from manyheads.runner.loop.header import header
from manyheads.runner.loop.monitor import Monitor
from manyheads.runner.loop.prepare import Prepared, closed_on_failure, prepare
from manyheads.runner.loop.reporter import Reporter
from manyheads.runner.loop.scores import Scores
from manyheads.runner.loop.train_settings import Ending, TrainSettings
from manyheads.runner.loop.trainer import Trainer
from manyheads.runner.loop.update import Update
from manyheads.runner.loop.utilization import Utilization, utilization
from manyheads.runner.machine.process import keep_freed_memory
from manyheads.runner.model.rank.describe import describe, other_classes
from manyheads.runner.option.locate import instantiate_named, load
from manyheads.runner.option.run_config import RunConfig
from manyheads.runner.parallel.rank.parallel import Parallel
from manyheads.runner.run.checkpoint_places import StateDict
from manyheads.runner.run.heartbeat import Heartbeat
from manyheads.runner.run.run_folder import RunFolder
from manyheads.runner.run.tables.writer import CSVWriter, NullWriter


def join(run: RunConfig, *, rank: int, local_rank: int, world_size: int) -> Parallel:
    """This rank's strategy, connected to all other ranks. Raises ConfigurationError."""
    device = run.trainer.device
    set_process(run.launcher.threads_per_rank, run.trainer.detect_anomaly, run.trainer.deterministic)
    keep_freed_memory()
    if device == "cuda":
        gpus = torch.cuda.device_count()
        device = f"cuda:{(number := run.launcher.device_number(local_rank, gpus=gpus))}"
        if gpus <= number:
            how = f": torch {torch.__version__} finds {gpus} GPUs, and rank {rank} needs number {number}. Set "
            how += "launcher.nproc_per_node to fewer, or trainer.device=cpu."
            raise ConfigurationError.at("trainer.device", "cuda", how)
    position = {"rank": rank, "local_rank": local_rank, "world_size": world_size, "device_type": device}
    parallel: Parallel = run.parallel.instantiate(**position)
    parallel.join()
    return parallel


def build(
    run: RunConfig, parallel: Parallel, folder: RunFolder, heartbeat: Heartbeat, state: StateDict | None = None
) -> Trainer:
    """Build everything that trains, shows and records; ``Trainer.close`` undoes it.

    ``state``: the checkpoint that will be resumed from.
    """
    parallel.beat = heartbeat.beat
    prepared = prepare(run, parallel, resumes=state is not None)
    callbacks = run.launcher.decided_threads(parallel, prepared, folder, measures=not run.trainer.evaluate_only)
    loaders = prepared.loaders
    with closed_on_failure(prepared.precision):
        flops = utilization(prepared.model, prepared.task, loaders.train, parallel, prepared.precision)
        display = Both(Terminal(), log_display(folder.log)) if parallel.records else Display()
        guards = guards_of_record(run.trainer, parallel, folder, display.say)
        update, settings = assemble(run, parallel, prepared, example=loaders.train.example, guards=guards)
        if run.callbacks:
            callbacks += load("manyheads.runner.loop.observers.callbacks.calling")(run.callbacks, parallel, folder)
        recorder = NullWriter()
        if parallel.records and not run.trainer.evaluate_only:
            recorder = build_recorder(run, update.scores, folder, state, display, has_mfu=flops is not None)
        reporter = _reporter(recorder, display, update, settings, flops)
    display.header(header(run, parallel, prepared, settings))
    if run.trainer.evaluate_only and (warning := other_classes(str(run.checkpoint.load), loaders.val)):
        display.say(warning)
    classes, pretrained = run.model.num_classes or prepared.data.num_classes, prepared.built.pretrained
    describes = partial(describe, loaders.val, loaders.train, num_classes=classes, pretrained=pretrained)
    description = [ModelDescription(folder, describes)] if parallel.records else []
    attached = [callback.attached(update, reporter) for callback in callbacks]
    observers = [*build_observers(run.trainer, update, loaders, reporter), *description, *attached]
    monitor = build_monitor(run, update, settings.ending, say=display.say)
    return Trainer(update, loaders, settings, reporter, heartbeat, monitor, observers)


def build_unrecorded(
    run: RunConfig, parallel: Parallel, folder: RunFolder, heartbeat: Heartbeat, prepared: Prepared | None = None
) -> Trainer:
    """Build what trains as the run would, but shows and records nothing, for measuring. ``prepared``: its parts."""
    prepared = prepared or prepare(run, parallel)
    run.launcher.decided_threads(parallel, prepared, folder, measures=False)
    loaders = prepared.loaders
    with closed_on_failure(prepared.precision):
        display = Display()
        guards = guards_of_record(run.trainer, parallel, folder, display.say)
        update, settings = assemble(run, parallel, prepared, example=loaders.train.example, guards=guards)
        reporter = _reporter(NullWriter(), display, update, settings)
    observers = build_observers(run.trainer, update, loaders, reporter)
    monitor = build_monitor(run, update, settings.ending, say=display.say)
    return Trainer(update, loaders, settings, reporter, heartbeat, monitor, observers)


def build_monitor(run: RunConfig, update: Update, ending: Ending, *, say: Callable[[str], None]) -> Monitor:
    """What passes the monitored number on, with what acts on it in this run, as it was set."""
    trainer, checkpoint, schedule = run.trainer, run.checkpoint, update.schedule
    acts = {
        f"checkpoint.monitor={checkpoint.monitor}": checkpoint.monitor != "auto",
        f"trainer.patience={trainer.patience}": trainer.patience is not None,
        f"scheduler={run.scheduler.name}": schedule.reads_monitor,
        "trainer.test=true": trainer.test and trainer.evaluate_every != 0 and checkpoint.every not in (0, "0"),
    }
    readers = [reader for reader, does in acts.items() if does]
    return Monitor(update.scores, schedule, ending, readers=readers, say=say)


def _reporter(
    recorder: NullWriter, display: Display, update: Update, settings: TrainSettings, flops: Utilization | None = None
) -> Reporter:
    parallel = update.parallel
    if parallel.keeps_rows:
        recorder = load("manyheads.runner.run.tables.of_replicas.Keeping")(recorder)
    return Reporter(recorder, display, parallel, update.scores, epochs=settings.epochs, utilization=flops)


def set_process(threads: int, detect_anomaly: bool, deterministic: bool) -> None:
    """Apply settings of the whole process; all are set each time, since the jobs of a sweep may share a process."""
    torch.set_num_threads(threads)
    torch.autograd.set_detect_anomaly(detect_anomaly)
    set_deterministic(deterministic)


def build_recorder(
    run: RunConfig, scores: Scores, folder: RunFolder, state: StateDict | None, display: Display, *, has_mfu: bool
) -> CSVWriter:
    """What writes the run's tables, with the config's loggers, started, except trackers, which publishers serve."""
    position, step = (state["tables"], state["progress"]["step"]) if state else ({}, 0)
    train, val = scores.names("train"), scores.names("val")
    sections = {name: option.section for name, option in run.logger.items() if not option.publishes}
    instances = instantiate_named("logger", sections, Logger)
    loggers: list[Logger] = [Guarded(name, logger, say=display.say) for name, logger in instances.items()]
    logged = LoggedRun(folder.path, folder.read_config(), step, [*train, *val])
    for logger in loggers:
        logger.start(logged)
    return CSVWriter(
        folder,
        train=train,
        val=val,
        position=position,
        loggers=loggers,
        within_epochs=steps_of(run.trainer.evaluate_every) is not None,
        has_mfu=has_mfu,
        skips=run.data.on_corrupt == "skip",
        finds_spikes=run.trainer.on_spike is not None,
    )
