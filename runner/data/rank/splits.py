"""Builds the data set of a split, as a rank loads it, from a data option, with wrappers that keep its attributes."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from manyheads.runner.data.data_option import HOW_TO_TEST, Data, DataOption
from manyheads.runner.data.partition import ChosenSamples, Partition
from manyheads.runner.data.rank.digests import varies
from manyheads.runner.data.rank.in_memory import InMemory, TableDataset, TokenDataset
from manyheads.runner.data.rank.transformed import Transformed
from manyheads.runner.data.read_ahead import ReadAhead
from manyheads.runner.data.samples import Dataset, DatasetWrapper, Files, ImageArrays, Samples, TableArrays, TokenBlocks
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
    if isinstance(samples, Files):
        samples = samples.read()
    if isinstance(samples, ImageArrays):
        return InMemory(
            torch.from_numpy(samples.images),
            torch.from_numpy(samples.targets),
            image_size=samples.image_size,
            augment=samples.augment,
            classes=samples.classes,
            augmentation=samples.augmentation,
        )
    if isinstance(samples, TableArrays):
        return TableDataset(samples)
    return TokenDataset(samples) if isinstance(samples, TokenBlocks) else samples


def _samples(data: Data, split: str, partition: Partition | None, name: str) -> Samples:
    if partition is None or split == "test":
        # If the validation samples were drawn from the training samples, the option's own ones are still unseen.
        dataset = data.split(train=split == "train") if split != "test" or partition else data.test()
        if dataset is None:
            raise ConfigurationError.at("trainer.test", True, f": data={name} has no samples to test on. {HOW_TO_TEST}")
        return dataset
    samples, is_train = data.split(train=True), split == "train"
    if isinstance(samples, Files):
        if (chosen := samples.chosen(partition, train=is_train)) is not None:
            return chosen
        samples = samples.read()
    return _chosen(samples, partition, train=is_train)


def _chosen(
    samples: ImageArrays | TableArrays | TokenBlocks | Dataset, partition: Partition, *, train: bool
) -> Samples:
    """The training samples of one side of the partition; those for validation are not augmented."""
    if isinstance(samples, ImageArrays):
        chosen = partition.indices(len(samples.images), train=train)
        augment = samples.augment if train else "none"
        return replace(samples, images=samples.images[chosen], targets=samples.targets[chosen], augment=augment)
    if isinstance(samples, TableArrays):
        chosen = partition.indices(len(samples.features), train=train)
        return replace(samples, features=samples.features[chosen], targets=samples.targets[chosen])
    if isinstance(samples, TokenBlocks):
        raise ConfigurationError(
            "data.val_fraction, data.folds: blocks of text can't be selected at random for validation. Set them to "
            "null, and give the data set a validation split of its own.",
            key="data.val_fraction",
        )
    return Subset(samples if train else _unaugmented(samples), partition.indices(len(samples), train=train))


def _unaugmented(samples: Dataset) -> Dataset:
    """The user's training samples without augmentation. Raises ConfigurationError if their class does not offer that.

    Augmentation that is not random can't be seen, and is its samples' content.
    """
    view, redraws = getattr(samples, "unaugmented", None), hasattr(samples, "set_epoch")
    if view is None and not redraws and not varies(samples):
        return samples
    if view is None:
        how = "has set_epoch, which redraws them" if redraws else "two readings of a sample differ"
        raise ConfigurationError(
            f"{type(samples).__name__} augments its training samples, of which data.val_fraction and data.folds select "
            f"the ones for validation: {how}. Give the class a method unaugmented(), which "
            "returns a data set of the same samples without augmentation, or leave augmentation to data.transform.",
            key="data.val_fraction",
        )
    if not callable(view) or len(dataset := view()) != len(samples):
        raise ConfigurationError(
            f"{type(samples).__name__}.unaugmented must be a method that returns the same {len(samples)} samples, in "
            "the same order, without augmentation.",
            key="data._target_",
        )
    return dataset


class Subset(DatasetWrapper):
    """Some samples of the user's own data set, with their ``paths`` and ``targets``, and all its other attributes."""

    def __init__(self, dataset: Dataset, chosen: np.ndarray):
        super().__init__(dataset)
        self.chosen = chosen
        for name in ("paths", "targets"):
            items = getattr(dataset, name, None)
            if items is not None and len(items) == len(dataset):
                setattr(self, name, ChosenSamples(items, chosen))
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
