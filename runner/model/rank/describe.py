"""Describes a run's model for model.json, from its loaders, or from its data."""

from contextlib import suppress
from typing import Any

import torch

from manyheads.runner.data.rank.loader import Loader
from manyheads.runner.errors import ConfigurationError
from manyheads.runner.run.model_description import DTYPES, Description, Steps, numbers, read
from manyheads.runner.run.run_folder import RunFolder

CPU = torch.device("cpu")
SHOWN = 5  # classes in a message


def describe(
    evaluation: Loader, train: Loader | None = None, *, num_classes: Any = None, pretrained: str | None = None
) -> Description:
    """Describe the model's inputs and outputs.

    ``evaluation``, ``train``: the loaders, which know a sample's shape once they have loaded one; ``num_classes``: the
    number of classes; ``pretrained``: the model's initial weights.
    """
    dataset, input_transform = evaluation.batches.dataset, evaluation.input_transform
    shape, dtype = evaluation.sample or (train and train.sample) or (None, None)
    are_pixels = dtype is None or (dtype == "uint8" and shape is not None and len(shape) > 2)
    source: Any = input_transform if are_pixels else dataset  # which otherwise has normalized its samples itself
    mean, std = (numbers(getattr(source, name, None)) for name in ("mean", "std"))
    return Description(
        num_classes=None if num_classes is None else int(num_classes),
        classes=_classes(dataset),
        image_size=size if isinstance(size := getattr(dataset, "image_size", None), int) else None,
        shape=shape,
        dtype=dtype if dtype in DTYPES else None,
        preprocess=Steps.of(getattr(dataset, "preprocess", None)),
        mean=mean,
        std=std,
        outputs=evaluation.task.outputs,
        pretrained=pretrained,
        table=getattr(dataset, "encoding", None),
    )


def other_classes(weights: str, evaluation: Loader) -> str | None:
    """A warning if a checkpoint's run had different classes from these samples; None if that is unknown."""
    classes, trained = _classes(evaluation.batches.dataset), _trained(weights)
    if classes is None or trained is None or trained.classes in (None, classes):
        return None
    return (
        f"warning: the weights were trained for different classes: {_listed(trained.classes)}, where this data has "
        f"{_listed(classes)}. Classes are matched by their numbers."
    )


def other_count(weights: str, count: Any) -> str | None:
    """Why a checkpoint does not fit data with this number of classes; None if it does, or if that is unknown."""
    trained = _trained(weights)
    if trained is None or None in (trained.num_classes, count) or trained.num_classes == count:
        return None
    return (
        f"checkpoint.load={weights} was trained for {trained.num_classes} classes, and this data has {count}. Evaluate "
        "it on data of the same classes."
    )


def _trained(weights: str) -> Description | None:
    """The description of a checkpoint's run; None if unknown, since the file may be from anywhere."""
    with suppress(ConfigurationError, OSError):
        return read(RunFolder.of_checkpoint(weights))
    return None


def _classes(dataset: Any) -> tuple[str, ...] | None:
    classes = getattr(dataset, "classes", None)
    return tuple(map(str, classes)) if isinstance(classes, (tuple, list)) else None


def _listed(classes: tuple[str, ...]) -> str:
    return ", ".join(classes[:SHOWN]) + (", ..." if len(classes) > SHOWN else "")
