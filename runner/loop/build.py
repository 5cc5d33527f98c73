"""Assembly of a rank from the run config, in the one order that satisfies every backend."""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import nn

from manyheads.runner.data.base.option import Data
from manyheads.runner.data.rank.build import Loaders, build_data, build_loaders
from manyheads.runner.data.rank.loader import Entrance
from manyheads.runner.loop.assembly import assemble
from manyheads.runner.loop.average import build_average
from manyheads.runner.loop.header import header, weights
from manyheads.runner.loop.observers import build_callbacks, build_reporter
from manyheads.runner.loop.trainer import Trainer
from manyheads.runner.loop.utilization import utilization
from manyheads.runner.model.rank.build import Built, built_model
from manyheads.runner.model.rank.from_data import initialize_from_data
from manyheads.runner.parallel.base.rank import Parallel
from manyheads.runner.parameters.rank.freeze import freeze
from manyheads.runner.precision.base.rank import Precision
from manyheads.runner.random.rank.determinism import set_deterministic
from manyheads.runner.random.rank.rng import seed_everything
from manyheads.runner.run.errors import ConfigurationError
from manyheads.runner.run.heartbeat import Heartbeat
from manyheads.runner.run.locate import instantiate
from manyheads.runner.run.run_folder import RunFolder
from manyheads.runner.serve.rank.describe import describe, other_classes, other_count
from manyheads.runner.task.base.rank import Task
from manyheads.runner.task.rank.build import build_task

Config = dict[str, Any]


def join(config: Config, *, rank: int, local_rank: int, world_size: int) -> Parallel:
    """This rank's strategy, connected to all other ranks. Raises ConfigurationError."""
    set_process(config)
    device = config["trainer"]["device"]
    if device == "cuda" and torch.cuda.device_count() <= local_rank:
        raise ConfigurationError(
            f"trainer.device=cuda: torch {torch.__version__} finds {torch.cuda.device_count()} GPUs, and rank "
            f"{rank} needs number {local_rank}. Set launcher.nproc_per_node to fewer, or trainer.device=cpu."
        )
    place = {"rank": rank, "local_rank": local_rank, "world_size": world_size, "device_type": device}
    parallel: Parallel = instantiate("parallel", config["parallel"], **place)
    parallel.join()
    return parallel


def build(
    config: Config,
    parallel: Parallel,
    folder: RunFolder,
    heartbeat: Heartbeat,
    state: dict[str, Any] | None = None,
    *,
    on_model: Callable[[nn.Module], None] | None = None,
    is_silent: bool = False,
) -> Trainer:
    """Build everything that trains; ``Trainer.close`` undoes it.

    ``state``: the checkpoint that will be resumed from. ``on_model``: called with the model before anything has changed
    it. ``is_silent``: the run shows and records nothing.
    """
    seed_everything(config["seed"])  # the same initial weights on every rank
    data = build_data(config["data"])
    precision: Precision = instantiate("precision", config["precision"], parallel)
    try:
        built = _built(config, data, precision.dtype)
        if on_model is not None:
            on_model(built.model)
        freeze(built.model, config["parameters"]["freeze"])
        parameters = sum(p.numel() for p in built.model.parameters())
        task, loaders = enter(config, parallel, data, precision.dtype)
        if state is None and _is_new(config, built):
            initialize_from_data(built.model, loaders.train.first)
        known = None if is_silent else utilization(built.model, task, loaders.train, parallel, precision)
        update, settings = assemble(config, parallel, precision, data, built.model, task=task, loaders=loaders)
        callbacks = [] if is_silent else build_callbacks(config, parallel)
        reporter = build_reporter(
            config, parallel, update.scores, folder, state, utilization=known, is_silent=is_silent
        )
    except BaseException:
        precision.close()
        raise
    train, evaluation = loaders.train, loaders.val
    samples = train.samples, evaluation.samples
    rows = header(
        config,
        folder,
        parallel,
        precision,
        model=built.model,
        parameters=parameters,
        samples=samples,
        classes=data.classes_in_words,
    )
    reporter.display.header(rows | weights(config, built))
    if config["trainer"]["evaluate_only"] and (warning := other_classes(config["checkpoint"]["load"], evaluation)):
        reporter.display.say(warning)
    classes = config["model"]["num_classes"] or data.num_classes
    return Trainer(
        update=update,
        train=train,
        evaluation=evaluation,
        test=loaders.test,
        settings=settings,
        reporter=reporter,
        heartbeat=heartbeat,
        describe=partial(describe, evaluation, train, num_classes=classes, pretrained=built.pretrained),
        callbacks=callbacks,
        average=None if config["trainer"]["evaluate_only"] else build_average(config["trainer"], update),
    )


def _is_new(config: Config, built: Built) -> bool:
    """Whether the model has random weights, and will be trained."""
    return not (built.pretrained or config["checkpoint"]["load"] or config["trainer"]["evaluate_only"])


def _built(config: Config, data: Data, dtype: torch.dtype) -> Built:
    """The model. Where weights to evaluate do not fit for other classes, the error says so."""
    try:
        return built_model(config, data, dtype=dtype)
    except ConfigurationError:
        count, path = config["model"]["num_classes"] or data.num_classes, config["checkpoint"]["load"]
        if config["trainer"]["evaluate_only"] and (reason := other_count(path, count)):
            raise ConfigurationError(reason) from None
        raise


def enter(config: Config, parallel: Parallel, data: Data, dtype: torch.dtype) -> tuple[Task, Loaders]:
    """The task, and the loaders for training and evaluation."""
    task = build_task(config, data).to(device=parallel.device, dtype=dtype)
    entrance = Entrance(parallel.device, dtype, config["trainer"]["channels_last"], data.mean, data.std)
    return task, build_loaders(config, data, task, parallel, entrance)


def set_process(config: Config) -> None:
    """Apply settings of the whole process; all are set each time, since the jobs of a sweep may share a process."""
    trainer = config["trainer"]
    torch.set_num_threads(config["launcher"]["threads_per_rank"])
    torch.autograd.set_detect_anomaly(trainer["detect_anomaly"])
    set_deterministic(trainer["deterministic"])
