"""Assembly of a rank from the run config, in the one order that satisfies every backend."""

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import nn

from manyheads.runner.checkpoint.every import steps_of
from manyheads.runner.data.base.option import Data
from manyheads.runner.data.rank.build import Loaders, build_data, build_loaders
from manyheads.runner.data.rank.loader import Entrance
from manyheads.runner.loop.average import build_average
from manyheads.runner.loop.compile import compile_in_place, compile_units
from manyheads.runner.loop.ending import Ending
from manyheads.runner.loop.header import header, weights
from manyheads.runner.loop.observers import build_callbacks, build_reporter
from manyheads.runner.loop.scores import Scores
from manyheads.runner.loop.settings import Settings
from manyheads.runner.loop.sharpness import Sharpness
from manyheads.runner.loop.trainer import Trainer
from manyheads.runner.loop.update import Update
from manyheads.runner.loop.utilization import utilization
from manyheads.runner.metrics.rank.build import build_metrics
from manyheads.runner.model.rank.build import Built, built_model
from manyheads.runner.model.rank.from_data import initialize_from_data
from manyheads.runner.optimizer.rank.build import build_optimizer
from manyheads.runner.option.duration import seconds
from manyheads.runner.parallel.base.rank import Parallel
from manyheads.runner.parallel.rank.recompute import recompute
from manyheads.runner.parallel.rank.units import listed_units
from manyheads.runner.parameters.rank.freeze import freeze, frozen_norms
from manyheads.runner.parameters.rank.groups import find_groups
from manyheads.runner.parameters.rank.phases import build_phases, find_rests
from manyheads.runner.precision.base.rank import Precision
from manyheads.runner.random.rank.determinism import set_deterministic
from manyheads.runner.random.rank.rng import seed_everything
from manyheads.runner.run.errors import ConfigurationError
from manyheads.runner.run.heartbeat import Heartbeat
from manyheads.runner.run.locate import instantiate, locate
from manyheads.runner.run.run_folder import RunFolder
from manyheads.runner.scheduler.rank.build import build_schedule
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
        freeze(built.model, config.get("parameters", {}).get("freeze", ()))
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
        config, folder, parallel, precision, parameters=parameters, samples=samples, classes=data.classes_in_words
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


def assemble(
    config: Config,
    parallel: Parallel,
    precision: Precision,
    data: Data,
    model: nn.Module,
    *,
    task: Task,
    loaders: Loaders,
) -> tuple[Update, Settings]:
    """Build the update of a model that is complete and on the CPU, and the loop's settings."""
    model = precision.convert(model)
    if config["trainer"]["channels_last"]:
        model = model.to(memory_format=torch.channels_last)
    parallel.example = loaders.train.example
    section = config.get("parameters", {})
    groups = find_groups(model, section, lr=config["optimizer"]["lr"])  # patterns are of the whole model
    rests = find_rests(model, section.get("freeze_epochs", ()), epochs=config["trainer"]["epochs"])
    model = parallel.place(model)
    if patterns := config["trainer"].get("recompute"):
        units = listed_units(model, patterns, key="trainer.recompute")
        recompute(units, key="trainer.recompute")
    kind = locate("optimizer", config["optimizer"]["_target_"])
    batch_size = config["data"]["batch_size"]
    optimizer = build_optimizer(kind, config["optimizer"], model, batch_size=batch_size, groups=groups)
    names = {parameter: name for name, parameter in model.named_parameters()}
    trained = [names[parameter] for group in optimizer.param_groups for parameter in group["params"]]
    optimizer = parallel.wrap_optimizer(optimizer, model)
    model, optimizer = precision.prepare(model, optimizer)
    model = parallel.wrap_model(model)
    if patterns := config["trainer"].get("compile_units"):
        compile_units(parallel.unwrap(model), config["trainer"]["compile"], patterns)
    else:
        compile_in_place(parallel.unwrap(model), config["trainer"]["compile"], parallel.device)
    added = build_metrics(config["metrics"], task, config["model"]["num_classes"] or data.num_classes)
    scores = Scores(task, added, monitor=config["checkpoint"]["monitor"])
    settings = build_settings(config["trainer"], loaders.train.updates)
    updates = {"updates_per_epoch": loaders.train.updates, "total_updates": settings.total_steps}
    rho = config["trainer"].get("sam_rho")
    sharpness = None if rho is None else Sharpness(rho, config["trainer"]["sam_every"])
    keeps = section.get("freeze_batchnorm", True)
    updated = dict(zip(trained, precision.parameters(optimizer), strict=True))
    phases = build_phases(parallel.unwrap(model), optimizer, updated, rests, keeps_statistics=keeps)
    update = Update(
        model=model,
        scores=scores,
        optimizer=optimizer,
        names=trained,
        schedule=build_schedule(config["scheduler"], optimizer, **updates),
        parallel=parallel,
        precision=precision,
        clip_norm=config["trainer"]["clip_norm"],
        clip_value=config["trainer"].get("clip_value", math.inf),
        on_nan=config["trainer"]["on_nan"],
        sharpness=sharpness,
        phases=phases,
        tta=config["trainer"].get("tta", "none"),
        at_rest=frozen_norms(parallel.unwrap(model)) if section.get("freeze_batchnorm") else (),
    )
    return update, settings


def build_settings(trainer: Config, updates_per_epoch: int) -> Settings:
    """The part of the config's trainer section that the loop needs."""
    total = trainer["epochs"] * updates_per_epoch
    total = min(total, trainer["max_steps"] or total)
    steps = steps_of(trainer["evaluate_every"]) or 0
    return Settings(
        epochs=trainer["epochs"],
        total_steps=total,
        last_step=min(total, trainer["stop_after"] or total),
        evaluate_every=0 if steps else trainer["evaluate_every"],
        evaluate_steps=steps,
        ending=Ending(seconds(trainer.get("max_time")), trainer.get("patience"), trainer.get("min_delta", 0.0)),
        grad_accumulation=trainer["grad_accumulation"],
        log_every=trainer["log_every"],
        warm_up=trainer["device"] == "cuda" or trainer["compile"] != "none",
    )


def set_process(config: Config) -> None:
    """Apply settings of the whole process; all are set each time, since the jobs of a sweep may share a process."""
    trainer = config["trainer"]
    torch.set_num_threads(config["launcher"]["threads_per_rank"])
    torch.autograd.set_detect_anomaly(trainer["detect_anomaly"])
    set_deterministic(trainer["deterministic"])
