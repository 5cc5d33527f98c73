"""What a rank trains, before the strategy divides it: data, precision, the complete model on the CPU, task, loaders."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import NamedTuple

import torch
from torch import nn

from manyheads.runner.checkpoint.rank.dtypes import converted
from manyheads.runner.checkpoint.rank.extra_state import refuse_cut
from manyheads.runner.data.data_option import Data
from manyheads.runner.data.rank.build_data import Loaders, build_data, build_loaders
from manyheads.runner.data.rank.input_transform import InputTransform
from manyheads.runner.data.rank.mixing import refuse_mixing
from manyheads.runner.data.rank.rng import seed_everything
from manyheads.runner.errors import ConfigurationError
from manyheads.runner.model.rank.build_model import Built, build_model, initialize_from_data, materialize
from manyheads.runner.model.rank.describe import other_count
from manyheads.runner.optimizer.rank.build_optimizer import refuse_unsupported
from manyheads.runner.optimizer.rank.freezing import freeze
from manyheads.runner.option import locate
from manyheads.runner.option.run_config import RunConfig
from manyheads.runner.parallel.rank.parallel import Parallel
from manyheads.runner.precision.rank.precision import PrecisionPolicy
from manyheads.runner.task.rank.build_task import build_task
from manyheads.runner.task.rank.task import Task

Convert = Callable[[nn.Module, torch.dtype], nn.Module]


class Prepared(NamedTuple):
    """The parts of a rank that are the same under every strategy. ``parameters``: number of the whole model's."""

    data: Data
    precision: PrecisionPolicy
    built: Built
    task: Task
    loaders: Loaders
    parameters: int

    @property
    def model(self) -> nn.Module:
        return self.built.model


@contextmanager
def closed_on_failure(precision: PrecisionPolicy) -> Iterator[None]:
    """A context that undoes what the precision has changed in torch itself if the rank can't be built."""
    try:
        yield
    except BaseException:
        precision.close()
        raise


def prepare(run: RunConfig, parallel: Parallel, *, resumes: bool = False, convert: Convert = converted) -> Prepared:
    """Prepare a rank; the initial weights are the same on every rank.

    ``resumes``: a checkpoint will be loaded. ``convert``: a model, as its constructor returns it, to the precision's
    dtype.
    """
    seed_everything(run.seed)
    trainer, load = run.trainer, run.checkpoint.load
    refuse_unsupported(run.optimizer)
    data = build_data(run.data)
    precision: PrecisionPolicy = run.precision.instantiate(parallel)
    with closed_on_failure(precision):
        with _other_count_explained(load if trainer.evaluate_only else None, run.model.num_classes, data):
            conversion = lambda model: convert(model, precision.dtype)  # noqa: E731
            loads = {"load_from": load, "strict": run.checkpoint.strict}
            builds = partial(build_model, run.model, data, convert=conversion, **loads)  # type: ignore[arg-type]
            defers = parallel.shares_model and convert is converted  # who converts otherwise looks at values
            built = locate.load("manyheads.runner.loop.deferred_build.built")(builds, parallel) if defers else builds()
        if parallel.shares_model:
            refuse_cut(built.model, run.parallel.name)
        task, loaders = build_task_and_loaders(run, parallel, data, precision.dtype)
        materialize(built.model, loaders.train.first, seed=run.seed)
        freeze(built.model, run.parameters.freeze)
        freeze(built.model, task.teachers, key="task.teachers")
        parameters = sum(p.numel() for p in built.model.parameters())
        task.check_model(built.model)
        if not (resumes or built.pretrained or load or trainer.evaluate_only):
            initialize_from_data(built.model, loaders.train.first)
        return Prepared(data, precision, built, task, loaders, parameters)


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
    refuse_mixing(task, mixup=trainer.mixup_alpha, cutmix=trainer.cutmix_alpha)
    return task, loaders
