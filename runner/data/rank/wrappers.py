"""Wrappers of data sets that keep the attributes of the wrapped one."""

from collections.abc import Callable, Sequence
from typing import Any

from torch import Tensor

from manyheads.runner.data.data_option import Dataset
from manyheads.runner.errors import ConfigurationError


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

    def __getitem__(self, index: int) -> Any:
        image, target, *rest = self.dataset[index]
        is_image = isinstance(image, Tensor) and image.ndim == 3
        is_mask = is_image and isinstance(target, Tensor) and target.shape == image.shape[1:]
        if not is_mask:
            for transform in self.transforms:
                image = transform(image)
            return image, target, *rest
        from torchvision import tv_tensors  # it takes two seconds, and few runs need it

        image, target = tv_tensors.Image(image), tv_tensors.Mask(target)
        for transform in self.transforms:
            image, target = transform(image, target)
        return image.as_subclass(Tensor), target.as_subclass(Tensor), *rest
