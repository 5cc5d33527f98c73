"""Turns a complete model on the CPU into an update: converted, placed, wrapped and compiled, with its optimizer."""

import math
from collections.abc import Callable, Sequence
from typing import Any, cast

import torch
from torch import nn

from manyheads.runner.checkpoint.rank.tied import names_of
from manyheads.runner.data.rank.batches import Batch
from manyheads.runner.data.rank.build_data import Loaders
from manyheads.runner.data.rank.sampler import EvaluationSampler
from manyheads.runner.errors import ConfigurationError
from manyheads.runner.loop.compile import compile_in_place, compile_units
from manyheads.runner.loop.guards.build_guards import build_guards
from manyheads.runner.loop.guards.guard import Guard
from manyheads.runner.loop.prepare import Prepared
from manyheads.runner.loop.scores import Scores
from manyheads.runner.loop.train_settings import TrainSettings
from manyheads.runner.loop.update import Clipping, Update, Wrapped
from manyheads.runner.metrics.metric import build_metrics
from manyheads.runner.optimizer.rank.build_optimizer import build_optimizer
from manyheads.runner.optimizer.rank.freezing import Phases, build_phases, find_rests, frozen_norms
from manyheads.runner.optimizer.rank.gradient_kinds import WORDS, unusual_gradients
from manyheads.runner.optimizer.rank.parameter_groups import find_groups
from manyheads.runner.option.locate import load
from manyheads.runner.option.run_config import RunConfig
from manyheads.runner.parallel.rank.parallel import GradientKind, Parallel
from manyheads.runner.parallel.rank.units import listed_units
from manyheads.runner.precision.rank.precision import PrecisionPolicy
from manyheads.runner.scheduler.rank.build_schedule import build_schedule


def assemble(
    run: RunConfig,
    parallel: Parallel,
    prepared: Prepared,
    *,
    example: Callable[[], Batch],
    guards: Sequence[Guard] = (),
) -> tuple[Update, TrainSettings]:
    """Build the update of a model that is complete and on the CPU, and the loop's settings.

    ``example``: makes a micro-batch, for strategies that split the model; ``guards``: asked after the config's.
    """
    trainer, data, precision, task = run.trainer, prepared.data, prepared.precision, prepared.task
    updates = prepared.loaders.train.updates
    parallel.example = example
    kind: Callable[..., Update] = Update
    if task.has_step:
        kind = load("manyheads.runner.loop.own_step.build.kind_of")(run.parallel, run.precision, trainer, seed=run.seed)
    epochs = trainer.epochs_in(updates)
    wrapped, phases = wrap(run, parallel, precision, prepared.model, epochs=epochs, wraps=not task.has_step)
    inner = parallel.unwrap(wrapped.model)
    added = build_metrics(run.metrics, task, run.model.num_classes or data.num_classes)
    settings = TrainSettings.of(trainer, updates)
    averages = not trainer.evaluate_only and (trainer.ema_decay is not None or trainer.swa_start is not None)
    ways = evaluations(inner, prepared.loaders, averages=averages)
    norms = frozen_norms(inner, run.parameters.freeze) if run.parameters.freeze_batchnorm else []
    norms = [*norms, *(inner.get_submodule(name) for name in task.teachers)]
    length = {"updates_per_epoch": updates, "total_updates": settings.total_steps}
    update = kind(
        wrapped,
        scores=Scores(task, added, monitor=run.checkpoint.monitor, evaluations=ways),
        schedule=build_schedule(run.scheduler, wrapped.optimizer, **length),
        parallel=parallel,
        precision=precision,
        clipping=Clipping(trainer.clip_norm, trainer.clip_value),
        guards=[*build_guards(trainer, parallel, norms=norms, phases=phases), *guards],
    )
    return update, settings


def evaluations(model: nn.Module, loaders: Loaders, *, averages: bool) -> dict[str, str]:
    """How evaluations are made, by split, where another release or configuration would measure something else.

    ``averages``: whether averages of the weights are evaluated.
    """
    is_tied = averages and any(len(names) > 1 for names in names_of(model).values())
    ways = {
        split: [cast(EvaluationSampler, loader.sampler).subset, "averages of tied weights" if is_tied else ""]
        for split, loader in (("val", loaders.val), ("test", loaders.test))
        if loader is not None
    }
    return {split: "; ".join(filter(None, words)) for split, words in ways.items() if any(words)}


def wrap(
    run: RunConfig, parallel: Parallel, precision: PrecisionPolicy, model: nn.Module, *, epochs: int, wraps: bool = True
) -> tuple[Wrapped, Phases | None]:
    """Convert, place, wrap and compile a model with its optimizer, in the one order that satisfies every backend.

    ``epochs``: in which the run ends; ``wraps``: whether the strategy wraps it. Also returns what is frozen in which
    epoch, if anything is.
    """
    trainer, section = run.trainer, run.parameters
    refuse_gradients(run, parallel, precision, model)
    model = precision.convert(model)
    if trainer.channels_last:
        model = model.to(memory_format=torch.channels_last)
    groups = find_groups(model, section, lr=run.optimizer.lr)  # patterns refer to the complete model
    rests = find_rests(model, section.freeze_epochs, epochs=epochs)
    if patterns := trainer.compile_units:
        compile_units(model, trainer.compile, patterns)
    model = parallel.place(model)
    if setting := trainer.recompute:
        units = listed_units(model, ["auto"] if setting == "selective" else setting, key="trainer.recompute")
        load("manyheads.runner.parallel.rank.recompute.recompute")(units, setting, key="trainer.recompute")
    optimizer = build_optimizer(run.optimizer, model, batch_size=run.data.batch_size, groups=groups)
    by_parameter = {parameter: name for name, parameter in model.named_parameters()}
    names = [by_parameter[parameter] for group in optimizer.param_groups for parameter in group["params"]]
    optimizer = parallel.wrap_optimizer(optimizer, model)
    model, optimizer = precision.prepare(model, optimizer)
    model = parallel.wrap_model(model) if wraps else model
    inner = parallel.unwrap(model)
    if not trainer.compile_units:
        compile_in_place(inner, trainer.compile, parallel.device)
    updated = dict(zip(names, precision.parameters(optimizer), strict=True))
    phases = build_phases(inner, optimizer, updated, rests, keeps_statistics=section.freeze_batchnorm)
    return Wrapped(model, optimizer, names), phases


def refuse_gradients(run: RunConfig, parallel: Parallel, precision: PrecisionPolicy, model: nn.Module) -> None:
    """Raises ConfigurationError for gradients that a setting cannot compute with, and for a model without any."""
    if not any(parameter.requires_grad for parameter in model.parameters()) and not run.trainer.evaluate_only:
        raise ConfigurationError(
            f"model._target_={run.model.target}: all of its parameters are frozen, so there is nothing to train. Set "
            "parameters.freeze to fewer of them, or requires_grad in the model; trainer.evaluate_only=true only "
            "evaluates it.",
            key="parameters.freeze",
        )
    trainer = run.trainer
    every: tuple[GradientKind, ...] = ("complex", "sparse")
    settings: list[tuple[str, Any, tuple[GradientKind, ...], str]] = [
        ("parallel", run.parallel.name, parallel.gradient_kinds, "parallel=ddp without compression, or single"),
        ("precision", run.precision.name, precision.gradient_kinds, "precision=bf16 or fp32"),
        ("trainer.clip_value", trainer.clip_value, every if trainer.clip_value == math.inf else (), "it to .inf"),
        ("trainer.verify_every", trainer.verify_every, ("complex",) if trainer.verify_every else every, "it to 0"),
    ]
    for kind, name in unusual_gradients(model).items():
        for key, value, kinds, remedy in settings:
            if kind not in kinds:
                raise ConfigurationError.at(key, value, f" does not support {name}, {WORDS[kind]}. Set {remedy}.")
