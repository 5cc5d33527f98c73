"""Builds the data sets and loaders of a run from the config's section ``data``."""

import inspect
import io
import random
from typing import Any, NamedTuple

import numpy as np
import torch

from manyheads.runner.data.data_option import HOW_TO_TEST, Data, DataOption
from manyheads.runner.data.global_batches import GlobalBatches
from manyheads.runner.data.order import build_order
from manyheads.runner.data.partition import KEYS
from manyheads.runner.data.rank.batches import BatchDataset
from manyheads.runner.data.rank.digests import are_same
from manyheads.runner.data.rank.input_transform import InputTransform
from manyheads.runner.data.rank.loader import Loader
from manyheads.runner.data.rank.mixing import Mixing
from manyheads.runner.data.rank.resizing import build_resizing
from manyheads.runner.data.rank.sampler import EvaluationSampler, TrainingSampler
from manyheads.runner.data.rank.splits import TRANSFORMS, build_split
from manyheads.runner.data.samples import Dataset, DatasetWrapper
from manyheads.runner.errors import ConfigurationError, warn
from manyheads.runner.option.locate import call, load
from manyheads.runner.option.trainer_section import TrainerSection
from manyheads.runner.parallel.rank.parallel import Parallel
from manyheads.runner.task.rank.task import Task

# Keys of any option that are not arguments of its class.
LOADING = (
    *("batch_size", "num_workers", "on_device", "drop_last", "on_corrupt", "fingerprint"),
    *("order", "order_block", "order_window", "sampler", "epoch_samples"),
)


class Loaders(NamedTuple):
    """The loaders of a run. ``test``: None unless the run tests its best weights at the end."""

    train: Loader
    val: Loader
    test: Loader | None = None


def build_data(option: DataOption) -> Data:
    """Build the option's data; the user's own class is wrapped in ``Custom``."""
    kind = option.kind
    drawn = KEYS if option.draws else ()  # data that splits itself, such as text, takes its own keys
    options = option.arguments(*LOADING, *drawn, *TRANSFORMS)
    streaming: dict[str, Any] | None = None
    if option.order == "stream":
        size, multiple_of = option.epoch_samples, option.batch_size if option.drop_last else 1
        streaming = {"size": size, "batch_size": option.batch_size, "multiple_of": multiple_of}
    if not (isinstance(kind, type) and issubclass(kind, Data)):
        try:
            splits = ("train", "val") if option.partition is None else ("train",)
            custom = load("manyheads.runner.data.rank.custom.Custom")
            data: Data = call("data", option.target, custom, kind, splits, streaming, **options)
        except FileNotFoundError as error:
            missing = f": {error.filename or error} does not exist. Set the key that names it, such as data.root."
            raise ConfigurationError.at("data._target_", option.target, missing) from error
    else:
        named = {"name": option.name} if "name" in inspect.signature(kind).parameters else {}
        data = call("data", option.target, kind, **options, **named)
        data.streaming = streaming
    data.without_classes = option.without_classes
    return data


def build_loaders(
    option: DataOption,
    trainer: TrainerSection,
    data: Data,
    task: Task,
    parallel: Parallel,
    input_transform: InputTransform,
    *,
    seed: int,
) -> Loaders:
    """Build the loaders of this rank's training and evaluation batches. Raises ConfigurationError."""
    train, *evaluated = _build_splits(data, option, tests=trainer.test and not trainer.evaluate_only)
    if parallel.rank == 0:
        warn_of_inherited(train, num_workers=option.num_workers)
    for dataset in (train, *evaluated) if option.on_device else ():
        dataset.to(parallel.device)  # type: ignore[attr-defined]
    for stream in (train, *evaluated) if option.order == "stream" else ():
        if hasattr(stream, "begin"):
            stream.begin(parallel, seed=seed)
    sampler = build_sampler(option, trainer, train, parallel, seed=seed)
    resizing = sampler.resizing
    loading: dict[str, Any] = {"seed": seed, "on_corrupt": option.on_corrupt}
    how: dict[str, Any] = {"task": task, "input_transform": input_transform, "num_workers": option.num_workers}
    samples = BatchDataset(train, replace_corrupt=True, resizes=resizing is not None, redraws=True, **loading)
    loaders = [Loader(samples, sampler, **how)]
    # Validation samples drawn from the training samples are in the same data set, which is resized.
    shared = resizing is not None and hasattr(evaluated[0], "resize")
    share: dict[str, Any] = {"rank": parallel.data_rank, "world_size": parallel.data_size}
    share |= {"batch_size": option.batch_size, "fill": parallel.evaluates_together, "seed": option.split_seed}
    limit_test = trainer.limit_val if trainer.limit_test is None else trainer.limit_test
    for dataset, limit in zip(evaluated, (trainer.limit_val, limit_test), strict=False):
        in_order = EvaluationSampler(len(dataset), limit=limit, **share)
        samples = BatchDataset(dataset, replace_corrupt=False, fill=in_order.fill, resizes=shared, **loading)
        loaders.append(Loader(samples, in_order, **how))
    return Loaders(*loaders)


def build_sampler(
    option: DataOption, trainer: TrainerSection, train: Dataset, parallel: Parallel, *, seed: int
) -> TrainingSampler:
    """What chooses this rank's training samples. Raises ConfigurationError."""
    if option.sampler is None:
        order = build_order(option.order, len(train), seed=seed, block=option.order_block, window=option.order_window)
        if option.order == "stream":
            order.summary = train.summary  # type: ignore[attr-defined]
    else:
        build_drawn_order = load("manyheads.runner.data.rank.sampling.drawn_order.build_drawn_order")
        order = build_drawn_order(option.sampler, train, batch_size=option.batch_size, seed=seed)
    batches = GlobalBatches(
        order.size,
        batch_size=option.batch_size,
        drop_last=option.drop_last,
        limit=trainer.limit_train,
        overfit=trainer.overfit,
        repeats=trainer.aug_repeats,
    )
    if not batches.updates:
        raise _too_few(order.size, option.batch_size)
    mixing = resizing = None
    if trainer.mixup_alpha or trainer.cutmix_alpha:
        mixing = Mixing(trainer.mixup_alpha, trainer.cutmix_alpha, trainer.mix_prob, trainer.mix_switch_prob, seed)
    if trainer.resize_from is not None:
        start, end, step = trainer.resize_start, trainer.resize_end, trainer.resize_step
        epochs = trainer.epochs_in(batches.updates)
        resizing = build_resizing(
            train, name=option.name, first=trainer.resize_from, start=start, end=end, step=step, epochs=epochs
        )
    return TrainingSampler(
        order,
        batches,
        rank=parallel.data_rank,
        world_size=parallel.data_size,
        accumulation=trainer.grad_accumulation,
        mixing=mixing,
        resizing=resizing,
    )


def _too_few(samples: int, batch_size: int) -> ConfigurationError:
    """The error for training samples that do not fill a batch."""
    return ConfigurationError.at(
        "data.batch_size",
        batch_size,
        f" is more than the {samples} training samples, and data.drop_last=true drops incomplete batches. Lower "
        "data.batch_size, or set data.drop_last=false.",
    )


def _build_splits(data: Data, option: DataOption, *, tests: bool) -> list[Dataset]:
    """The samples for training, for validation and, with ``tests``, for the test.

    Raises ConfigurationError if the test split is another split once more, or if there is none: a user's function that
    distinguishes only "train" and the rest would return its validation samples.
    """
    train, val = (build_split(data, split, option) for split in ("train", "val"))
    if not tests:
        return [train, val]
    test = build_split(data, "test", option)
    for name, other in (("validation", val), ("training", train)):
        if are_same(test, other):
            raise ConfigurationError.at(
                "trainer.test",
                True,
                f": data={option.name} returns its {name} samples as test samples. Let it return others for "
                f'split="test", or raise ValueError if it has none. {HOW_TO_TEST}',
            )
    return [train, val, test]


GENERATORS = (random.Random, np.random.Generator, np.random.RandomState, torch.Generator)


def warn_of_inherited(dataset: Any, *, num_workers: int) -> None:
    """Warn of open files and generators among the attributes of a data set that loader processes inherit."""
    while isinstance(dataset, DatasetWrapper):
        dataset = dataset.dataset
    for name, value in getattr(dataset, "__dict__", {}).items() if num_workers else ():
        attribute = f"{type(dataset).__name__}.{name}"
        if isinstance(value, io.IOBase) and not isinstance(value, (io.BytesIO, io.StringIO)):
            warn(
                f"{attribute} is a file that is already open: loader processes share its position, and may read each "
                "other's bytes. Open it in __getitem__, once per process, or set data.num_workers=0."
            )
        elif isinstance(value, GENERATORS):
            warn(
                f"{attribute} is a random generator of its own: each loader process draws the same numbers from its "
                "copy. Draw from random, numpy.random or torch instead, which are seeded for each sample, or set "
                "data.num_workers=0."
            )
