"""data=synthetic: images generated from a seed, each class its own pattern under noise."""

from typing import ClassVar

from manyheads.runner.data.data_option import Data, DataOption
from manyheads.runner.data.samples import Augmentation, ImageArrays
from manyheads.runner.option.rules import whole


class SyntheticOption(DataOption):
    """Declares images that are generated in memory."""

    most_workers = 0
    rules: ClassVar = {"train_samples": whole(1), "val_samples": whole(1)}


class Synthetic(Data):
    """(3, image_size, image_size) uint8 images; the same ones in every run, on every machine."""

    def __init__(
        self,
        *,
        image_size: int,
        num_classes: int,
        train_samples: int,
        val_samples: int,
        augment: str = "none",
        shift: int | None = None,
        padding: str = "zeros",
        flip: str = "random",
    ):
        self.image_size, self.num_classes, self.augment = image_size, num_classes, augment
        self.augmentation = Augmentation(shift, padding, flip)
        self.samples = {True: train_samples, False: val_samples}

    def split(self, *, train: bool) -> ImageArrays:
        import numpy as np

        count = self.samples[train]
        patterns = np.random.RandomState(0).randint(0, 256, (self.num_classes, 3, 4, 4))
        noise = np.random.RandomState(1 if train else 2).randint(-64, 65, (count, 3, 4, 4))
        targets = np.arange(count) % self.num_classes
        images = np.clip(patterns[targets] + noise, 0, 255).astype(np.uint8)
        augment = self.augment if train else "none"
        return ImageArrays(images, targets, self.image_size, augment, augmentation=self.augmentation)
