"""The config's transforms of a sample: its image, and all that has the image's height and width."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from manyheads.runner.data.rank.rng import GENERATORS
from manyheads.runner.data.samples import Dataset, DatasetWrapper
from manyheads.runner.errors import ConfigurationError
from manyheads.runner.parallel.rank.structure import map_tensors, tensors_in


class Transformed(DatasetWrapper):
    """A data set of transformed samples, (image, target, ...) or a dict.

    Tensors (..., H, W) of the image's size, and torchvision's tv_tensors, are transformed with it, as masks: only
    geometric transforms change them, without interpolation. Raises ConfigurationError for what can't be called, and
    with each sample for tensors that would have to be transformed too, and can't be.
    """

    def __init__(self, dataset: Dataset, transforms: Sequence[Callable[..., Any]]):
        super().__init__(dataset)
        self.transforms = transforms
        if unfit := [transform for transform in transforms if not callable(transform)]:
            raise ConfigurationError(
                f"data.transform: {unfit[0]!r} cannot be called. Give each a _target_.", key="data.transform"
            )
        generators = getattr(dataset, "draws_from", GENERATORS)
        self.draws_from = ("torch", *generators) if all(map(_draws_from_torch, transforms)) else GENERATORS

    def __getitem__(self, index: int) -> Any:
        if (sample := self.dataset[index]) is None:
            return None
        keys: Any = [*sample] if isinstance(sample, Mapping) else range(len(sample))
        images = (k for k in keys if _size(sample[k]) is not None)
        key = next(images, keys[0]) if isinstance(sample, Mapping) else 0
        image, others = sample[key], {k: sample[k] for k in keys if k != key}
        if type(image) is Tensor:
            image = image.contiguous()  # transforms may round differently in other memory formats, or call view
        size = _size(image)
        tensors = [*tensors_in(others)]
        moved = [tensor for tensor in tensors if _moves(tensor, size)]
        left = [tensor for tensor in tensors if not _moves(tensor, size) and _may_move(tensor)]
        if moved or (left and size and all(map(_draws_from_torch, self.transforms))):
            image, moved = self._together(image, moved, left, size)
            replaced = iter(moved)
            others = map_tensors(lambda tensor: next(replaced) if _moves(tensor, size) else tensor, others)
        else:
            for transform in self.transforms:
                image = transform(image)
        entries = {k: image if k == key else others[k] for k in keys}
        return entries if isinstance(sample, Mapping) else (*entries.values(),)

    def _together(self, image: Any, moved: list[Tensor], left: list[Tensor], size: Any) -> tuple[Any, list[Tensor]]:
        """The image and the tensors that move with it, transformed; those that are ``left`` must not have to move."""
        from torchvision import tv_tensors  # it takes two seconds, and few runs need it

        values = [tensor if isinstance(tensor, tv_tensors.TVTensor) else tv_tensors.Mask(tensor) for tensor in moved]
        places = tv_tensors.Mask(torch.arange(size[0] * size[1]).view(size)) if left else None
        values = values if places is None else [*values, places]
        image = tv_tensors.Image(image) if isinstance(image, Tensor) else image
        for transform in self.transforms:
            if not _takes(transform, 1 + len(values)):
                raise ConfigurationError(
                    f"data.transform: {transform!r} takes the image alone, and the sample also has a tensor "
                    f"{tuple(values[0].shape)} of the image's size, which a flip or crop would have to change too. Use "
                    "a transform of torchvision.transforms.v2, or one that is called with both.",
                    key="data.transform",
                )
            image, *values = transform(image, *values)
        if places is not None and not torch.equal(values.pop(), places):
            raise ConfigurationError(
                f"data.transform: the image was moved, and the tensor {tuple(left[0].shape)} of its sample can't move "
                "with it. Return it with the image's height and width, or as one of torchvision's tv_tensors, such as "
                "BoundingBoxes; or flattened, if it has no positions.",
                key="data.transform",
            )
        plain = [tensor.as_subclass(Tensor) if isinstance(tensor, Tensor) else tensor for tensor in (image, *values)]
        return plain[0], plain[1:]


def _size(image: Any) -> tuple[int, ...] | None:
    """Height and width of an image, (C, H, W) or PIL's; None for anything else."""
    if hasattr(image, "getbands"):
        return image.height, image.width
    return (*image.shape[-2:],) if isinstance(image, Tensor) and image.ndim == 3 else None


def _moves(tensor: Tensor, size: tuple[int, ...] | None) -> bool:
    """Whether a tensor beside an image is transformed with it."""
    return size is not None and (tensor.shape[-2:] == size or type(tensor) is not Tensor)


def _may_move(tensor: Tensor) -> bool:
    """Whether a tensor of another size may depend on positions in the image, as heatmaps, points and boxes do."""
    return tensor.ndim > 1 and tensor.is_floating_point()


def _takes(transform: Any, count: int) -> bool:
    """Whether a transform can be called with this many values."""
    try:
        inspect.signature(transform.forward if isinstance(transform, nn.Module) else transform).bind(*range(count))
    except TypeError:
        return False
    except ValueError:  # of a function in C
        pass
    return True


def _draws_from_torch(transform: object) -> bool:
    """Whether a transform draws from no generator but torch's, as torchvision's do, unless they call the user's own."""
    kind = type(transform)
    calls_others = hasattr(transform, "transforms") or kind.__name__ == "Lambda"
    return kind.__module__.startswith("torchvision.transforms.v2.") and not calls_others
