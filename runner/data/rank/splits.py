"""Builds the data set of a split, as a rank loads it, from a data option, with wrappers that keep its attributes."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from manyheads.runner.data.data_option import HOW_TO_TEST, Data, DataOption
from manyheads.runner.data.partition import ChosenSamples, Partition
from manyheads.runner.data.rank import torchvision as torchvision_files
from manyheads.runner.data.rank.in_memory import Blocks, InMemory, Rows
from manyheads.runner.data.rank.rng import GENERATORS
from manyheads.runner.data.read_ahead import ReadAhead
from manyheads.runner.data.samples import (
    Dataset,
    ImageArrays,
    ImageFiles,
    Samples,
    Table,
    TokenBlocks,
    TorchvisionFiles,
)
from manyheads.runner.errors import ConfigurationError
from manyheads.runner.option.locate import arguments_of

TRANSFORMS = ("transform", "val_transform")


def build_split(data: Data, split: str, option: DataOption) -> Dataset:
    """Build the data set of "train", "val" or "test", drawn and transformed as the option says.

    Raises ConfigurationError.
    """
    dataset = as_dataset(_samples(data, split, option.partition, option.name))
    name = "transform" if split == "train" else "val_transform"
    transforms = getattr(option, name)
    if not transforms:
        return dataset
    return Transformed(dataset, arguments_of("data", {name: transforms})[name])


def as_dataset(samples: Samples) -> Dataset:
    """An option's samples as a data set. Raises ConfigurationError."""
    if isinstance(samples, TorchvisionFiles):
        samples = torchvision_files.read(samples)
    if isinstance(samples, ImageArrays):
        images, targets = torch.from_numpy(samples.images), torch.from_numpy(samples.targets)
        return InMemory(
            images,
            targets,
            image_size=samples.image_size,
            augment=samples.augment,
            classes=samples.classes,
            augmentation=samples.augmentation,
        )
    if isinstance(samples, ImageFiles):
        from manyheads.runner.data.rank.photos import Photos  # imports torchvision, which is slow

        return Photos(
            samples.paths,
            samples.targets,
            image_size=(samples.train_size if samples.train else None) or samples.image_size,
            train=samples.train,
            classes=samples.classes,
            resize=samples.resize,
            within=samples.within,
        )
    if isinstance(samples, Table):
        return Rows(samples)
    return Blocks(samples) if isinstance(samples, TokenBlocks) else samples


def _samples(data: Data, split: str, partition: Partition | None, name: str) -> Samples:
    if partition is None or split == "test":
        # If the validation samples were drawn from the training samples, the option's own ones are still unseen.
        found = data.split(train=split == "train") if split != "test" or partition else data.test()
        if found is None:
            raise ConfigurationError.at(
                "trainer.test",
                True,
                f": data={name} has no samples to test on. {HOW_TO_TEST}",
            )
        return found
    samples = data.split(train=True)
    if isinstance(samples, TorchvisionFiles):
        samples = torchvision_files.read(samples)
    return _chosen(samples, partition, train=split == "train")


def _chosen(samples: Samples, partition: Partition, *, train: bool) -> Samples:
    """The training samples of one side of the partition; those for validation are not augmented."""
    if isinstance(samples, ImageArrays):
        chosen = partition.indices(len(samples.images), train=train)
        augment = samples.augment if train else "none"
        return replace(samples, images=samples.images[chosen], targets=samples.targets[chosen], augment=augment)
    if isinstance(samples, ImageFiles):
        chosen = partition.indices(len(samples.paths), train=train)
        paths, targets = ChosenSamples(samples.paths, chosen), ChosenSamples(samples.targets, chosen)
        return replace(samples, paths=paths, targets=targets, train=train)
    if isinstance(samples, Table):
        chosen = partition.indices(len(samples.features), train=train)
        return Table(samples.features[chosen], samples.targets[chosen])
    if isinstance(samples, TokenBlocks):
        raise ConfigurationError(
            "data.val_fraction, data.folds: blocks of text can't be selected at random for validation. Set them to "
            "null, and give the data set a validation split of its own.",
            key="data.val_fraction",
        )
    assert not isinstance(samples, TorchvisionFiles)
    return Subset(samples, partition.indices(len(samples), train=train))


class DatasetWrapper:
    """A wrapper with all attributes of ``dataset``, such as its classes and its collate_fn, unless it defines its own.

    ``batch`` is never taken over, since that would bypass what the wrapper does to each sample.
    """

    def __init__(self, dataset: Dataset):
        self.dataset = dataset

    def __getattr__(self, name: str) -> Any:
        if name in ("batch", "dataset"):
            raise AttributeError(name)
        return getattr(self.dataset, name)

    def __len__(self) -> int:
        return len(self.dataset)


class Transformed(DatasetWrapper):
    """A data set of transformed (image, target); a target that is a mask of the image's size is transformed with it."""

    def __init__(self, dataset: Dataset, transforms: Sequence[Callable[..., Any]]):
        super().__init__(dataset)
        self.transforms = transforms
        if unfit := [each for each in transforms if not callable(each)]:
            raise ConfigurationError(
                f"data.transform: {unfit[0]!r} cannot be called. Give each a _target_.", key="data.transform"
            )
        own = getattr(dataset, "draws_from", GENERATORS)
        self.draws_from = ("torch", *own) if all(map(_draws_from_torch, transforms)) else GENERATORS

    def __getitem__(self, index: int) -> Any:
        image, target, *rest = self.dataset[index]
        if type(image) is Tensor:
            image = image.contiguous()  # transforms may round differently in other memory formats, or call view
        if not _is_mask(target, image):
            for transform in self.transforms:
                image = transform(image)
            return image, target, *rest
        from torchvision import tv_tensors  # it takes two seconds, and few runs need it

        image, target = tv_tensors.Image(image), tv_tensors.Mask(target)
        for transform in self.transforms:
            image, target = transform(image, target)
        return image.as_subclass(Tensor), target.as_subclass(Tensor), *rest


def _is_mask(target: Any, image: Any) -> bool:
    is_plane = isinstance(target, Tensor) and target.ndim == 2
    return is_plane and isinstance(image, Tensor) and image.ndim == 3 and target.shape == image.shape[1:]


def _draws_from_torch(transform: object) -> bool:
    """Whether a transform draws from no generator but torch's, as torchvision's do, unless they call the user's own."""
    kind = type(transform)
    calls_others = hasattr(transform, "transforms") or kind.__name__ == "Lambda"
    return kind.__module__.startswith("torchvision.transforms.v2.") and not calls_others


class Subset(DatasetWrapper):
    """Some samples of the user's own data set, with all its other attributes."""

    def __init__(self, dataset: Dataset, chosen: np.ndarray):
        super().__init__(dataset)
        self.chosen = chosen
        ahead: ReadAhead | None = getattr(dataset, "read_ahead", None)
        self.read_ahead = ahead and ahead.of(chosen)
        if hasattr(dataset, "batch"):
            self.batch = self._batch

    def __len__(self) -> int:
        return len(self.chosen)

    def __getitem__(self, index: int) -> Any:
        return self.dataset[int(self.chosen[index])]

    def _batch(self, indices: Sequence[int], keys: np.ndarray) -> Any:
        return self.dataset.batch(self.chosen[indices], keys)  # type: ignore[attr-defined]
