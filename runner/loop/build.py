"""Assembles a rank from the run config, and what records the run, in the one order that satisfies every backend."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial

import torch
from torch import nn

from manyheads.runner.callbacks.callback import Callback
from manyheads.runner.checkpoint.rank.dtypes import converted
from manyheads.runner.checkpoint.rank.extra_state import refuse_cut
from manyheads.runner.checkpoint.retention import steps_of
from manyheads.runner.data.data_option import Data
from manyheads.runner.data.rank.build_data import Loaders, build_data, build_loaders
from manyheads.runner.data.rank.input_transform import InputTransform
from manyheads.runner.data.rank.mixing import refuse_mixing
from manyheads.runner.data.rank.rng import seed_everything
from manyheads.runner.data.rank.taken import Taken
from manyheads.runner.errors import ConfigurationError
from manyheads.runner.logger.logger import Guarded, LoggedRun, Logger
from manyheads.runner.logger.run_log import Both, log_display
from manyheads.runner.logger.terminal import Display, Terminal
from manyheads.runner.loop.assembly import assemble
from manyheads.runner.loop.average import build_average
from manyheads.runner.loop.determinism import set_deterministic
from manyheads.runner.loop.guards.build_guards import guards_of_record
from manyheads.runner.loop.header import header
from manyheads.runner.loop.monitor import readers_of
from manyheads.runner.loop.reporter import Reporter
from manyheads.runner.loop.scores import Scores
from manyheads.runner.loop.trainer import Trainer
from manyheads.runner.loop.utilization import Utilization, utilization
from manyheads.runner.model.rank.build_model import build_model, initialize_from_data, materialize
from manyheads.runner.model.rank.describe import describe, other_classes, other_count
from manyheads.runner.optimizer.rank.build_optimizer import refuse_closure
from manyheads.runner.optimizer.rank.freezing import freeze
from manyheads.runner.option.locate import Section, instantiate_named
from manyheads.runner.option.run_config import RunConfig
from manyheads.runner.parallel.rank.parallel import Parallel
from manyheads.runner.precision.rank.precision import Precision
from manyheads.runner.run.heartbeat import Heartbeat
from manyheads.runner.run.run_folder import RunFolder
from manyheads.runner.run.state_dict import StateDict
from manyheads.runner.run.tables.of_replicas import Keeping
from manyheads.runner.run.tables.writer import CSVWriter, NullWriter
from manyheads.runner.task.rank.build_task import build_task
from manyheads.runner.task.rank.task import Task


def join(run: RunConfig, *, rank: int, local_rank: int, world_size: int) -> Parallel:
    """This rank's strategy, connected to all other ranks. Raises ConfigurationError."""
    trainer, device = run.trainer, run.trainer.device
    set_process(
        threads=run.launcher.threads_per_rank,
        detect_anomaly=trainer.detect_anomaly,
        deterministic=trainer.deterministic,
    )
    if device == "cuda" and torch.cuda.device_count() <= local_rank:
        raise ConfigurationError.at(
            "trainer.device",
            "cuda",
            f": torch {torch.__version__} finds {torch.cuda.device_count()} GPUs, and rank "
            f"{rank} needs number {local_rank}. Set launcher.nproc_per_node to fewer, or trainer.device=cpu.",
        )
    place = {"rank": rank, "local_rank": local_rank, "world_size": world_size, "device_type": device}
    parallel: Parallel = run.parallel.instantiate(**place)
    parallel.join()
    return parallel


def build(
    run: RunConfig,
    parallel: Parallel,
    folder: RunFolder,
    heartbeat: Heartbeat,
    state: StateDict | None = None,
    *,
    convert: Callable[[nn.Module, torch.dtype], nn.Module] = converted,
    on_model: Callable[[nn.Module], None] | None = None,
    is_silent: bool = False,
) -> Trainer:
    """Build everything that trains; ``Trainer.close`` undoes it.

    ``state``: the checkpoint that will be resumed from. ``convert``: to the precision's dtype, a model as its
    constructor returns it. ``on_model``: called with the complete model, before precision and strategy change it.
    ``is_silent``: the run shows and records nothing.
    """
    seed_everything(run.seed)  # the same initial weights on every rank
    trainer, checkpoint = run.trainer, run.checkpoint
    refuse_closure(run.optimizer)
    data = build_data(run.data)
    precision: Precision = run.precision.instantiate(parallel)
    try:
        own, load = run.model.num_classes, checkpoint.load
        with _other_count_explained(load if trainer.evaluate_only else None, own, data):
            built = build_model(
                run.model,
                data,
                convert=lambda model: convert(model, precision.dtype),
                load_from=load,
                strict=checkpoint.strict,
            )
        if parallel.shares_model:
            refuse_cut(built.model, run.parallel.name)
        task, loaders = build_task_and_loaders(run, parallel, data, precision.dtype)
        materialize(built.model, loaders.train.first, seed=run.seed)
        freeze(built.model, run.parameters.freeze)
        parameters = sum(p.numel() for p in built.model.parameters())
        task.check_model(built.model)
        if state is None and not (built.pretrained or checkpoint.load or trainer.evaluate_only):
            initialize_from_data(built.model, loaders.train.first)
        if on_model is not None:
            on_model(built.model)
        known = None if is_silent else utilization(built.model, task, loaders.train, parallel, precision)
        update, settings = assemble(run, parallel, precision, data, built.model, task=task, loaders=loaders)
        callbacks = [] if is_silent else build_callbacks(run.callbacks, parallel)
        samples = loaders.train.samples
        size = {"samples": samples, "epochs": settings.epochs}
        reporter = build_reporter(
            run, parallel, update.scores, folder, state, **size, utilization=known, is_silent=is_silent
        )
        update.guards += guards_of_record(run, update, folder, reporter.display.say)
    except BaseException:
        precision.close()
        raise
    words = data.classes_in_words
    rows = header(run, parallel, precision, built, loaders, settings, parameters=parameters, classes=words)
    reporter.display.header(rows)
    if trainer.evaluate_only and (warning := other_classes(str(checkpoint.load), loaders.val)):
        reporter.display.say(warning)
    classes = own or data.num_classes
    # Otherwise samples are taken repeatedly, or by ranks that leave and rejoin.
    marks = trainer.aug_repeats == 1 and not parallel.keeps_rows
    return Trainer(
        update=update,
        train=loaders.train,
        evaluation=loaders.val,
        test=loaders.test,
        settings=settings,
        reporter=reporter,
        heartbeat=heartbeat,
        describe=partial(describe, loaders.val, loaders.train, num_classes=classes, pretrained=built.pretrained),
        callbacks=callbacks,
        average=None if trainer.evaluate_only else build_average(trainer, update, epochs=settings.epochs),
        taken=Taken(samples, marks=marks and not trainer.evaluate_only),
        readers=readers_of(run, update.schedule),
    )


@contextmanager
def _other_count_explained(weights: str | None, num_classes: int | None, data: Data) -> Iterator[None]:
    """A context in which the error says so if the weights to evaluate, if any, are for another number of classes."""
    try:
        yield
    except ConfigurationError:
        if weights is not None and (reason := other_count(weights, num_classes or data.num_classes)):
            raise ConfigurationError(reason) from None
        raise


def build_task_and_loaders(run: RunConfig, parallel: Parallel, data: Data, dtype: torch.dtype) -> tuple[Task, Loaders]:
    """The task, and the loaders for training and evaluation."""
    trainer = run.trainer
    task = build_task(run.task, data, loss=run.loss, label_smoothing=trainer.label_smoothing)
    converted(task, dtype)
    task = task.to(parallel.device)
    input_transform = InputTransform(parallel.device, dtype, trainer.channels_last, data.mean, data.std)
    loaders = build_loaders(run.data, trainer, data, task, parallel, input_transform, seed=run.seed)
    sees = task.sees if type(task).see_first is not Task.see_first else 0
    if sees and (seen := loaders.train.spread(sees)) is not None:
        task.see_first(seen)
    refuse_mixing(trainer, task)
    return task, loaders


def set_process(*, threads: int, detect_anomaly: bool, deterministic: bool) -> None:
    """Apply settings of the whole process; all are set each time, since the jobs of a sweep may share a process."""
    torch.set_num_threads(threads)
    torch.autograd.set_detect_anomaly(detect_anomaly)
    set_deterministic(deterministic)


def build_reporter(
    run: RunConfig,
    parallel: Parallel,
    scores: Scores,
    folder: RunFolder,
    state: StateDict | None,
    *,
    samples: int,
    epochs: int,
    utilization: Utilization | None = None,
    is_silent: bool = False,
) -> Reporter:
    """The rank's reporter. Only rank 0's writes and prints; for an evaluation there are no rows to write.

    ``samples``: how many there are to train on; ``epochs``: in which the run ends.
    """
    recorder, display = NullWriter(), Display()
    if parallel.records and not is_silent:
        display = Both(Terminal(), log_display(folder.log))
        if not run.trainer.evaluate_only:
            recorder = build_recorder(run, scores, folder, state, display, has_mfu=utilization is not None)
    return Reporter(
        recorder=Keeping(recorder) if parallel.keeps_rows else recorder,
        display=display,
        parallel=parallel,
        epochs=epochs,
        scores=scores,
        utilization=utilization,
        samples=samples,
    )


def build_recorder(
    run: RunConfig, scores: Scores, folder: RunFolder, state: StateDict | None, display: Display, *, has_mfu: bool
) -> CSVWriter:
    """What writes the run's tables, with the config's loggers, started, except trackers, which publishers serve."""
    position, step = (state["tables"], state["progress"]["step"]) if state else ({}, 0)
    train, val = scores.names("train"), scores.names("val")
    own = {name: option.section for name, option in run.logger.items() if not option.publishes}
    made = instantiate_named("logger", own, Logger)
    loggers: list[Logger] = [Guarded(name, logger, say=display.say) for name, logger in made.items()]
    logged = LoggedRun(folder.path, dict(run.written), step, [*train, *val])
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


def build_callbacks(sections: Mapping[str, Section], parallel: Parallel) -> list[Callback]:
    """The config's callbacks that this rank has."""
    made = instantiate_named("callbacks", sections, Callback)
    return [callback for callback in made.values() if parallel.records or callback.every_rank]
