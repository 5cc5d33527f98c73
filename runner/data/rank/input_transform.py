"""Prepares a batch's inputs for the model: the only place where their dtype and memory format change."""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from manyheads.runner.errors import ConfigurationError
from manyheads.runner.parallel.rank.structure import map_tensors, tensors_in

ROUNDING = 1e-5  # of the spread of a feature's values: a larger error by float32 would be noise in the data
CONSTANT = 1e-12  # of a feature's largest value: a smaller spread is rounding in float64


@dataclass(frozen=True)
class InputTransform:
    """How a batch is prepared for the model: device, dtype, memory format; for uint8 images mean and std, in 0..1."""

    device: torch.device
    dtype: torch.dtype
    channels_last: bool
    mean: tuple[float, ...]
    std: tuple[float, ...]

    def inputs(self, inputs: Any, labels: Iterable[Tensor] = ()) -> Any:
        """Prepare the model's inputs, tensors in any structure; uint8 tensors that are not images are unchanged.

        ``labels``: those of the inputs that are. Raises ConfigurationError for uint8 tensors that may be images or not.
        """
        tensors, named = [*tensors_in(inputs)], {id(label) for label in labels}
        main = next((tensor for tensor in tensors if tensor.ndim > 3), tensors[0] if tensors else None)

        def prepared(tensor: Tensor) -> Tensor:
            if tensor.dtype != torch.uint8 or self._is_images(tensor, main, is_label=id(tensor) in named):
                return self.prepare(tensor)
            return _contiguous(tensor)

        return map_tensors(prepared, inputs)

    def prepare(self, tensor: Tensor) -> Tensor:
        """Prepare one of the model's inputs; uint8 images have the shape (..., C, H, W).

        The result is contiguous, or in memory format channels_last if it has four dimensions and that is configured.
        """
        keeps_format = self.channels_last and tensor.ndim == 4
        if keeps_format:  # before the conversion, while pixels have eight bits
            tensor = tensor.contiguous(memory_format=torch.channels_last)
        if tensor.dtype == torch.uint8:  # copied as a quarter of the bytes, normalized on the device
            scale, shift = self._normalization
            tensor = tensor if keeps_format else unless_repeated(tensor)
            return tensor.to(self.dtype).mul_(scale).add_(shift)
        tensor = tensor.to(self.dtype) if tensor.is_floating_point() else tensor
        return tensor if keeps_format else _contiguous(tensor)

    def check(self, inputs: Any) -> float:
        """Refuse float64 inputs, before they are prepared, whose values float32 can't tell apart; waits for the device.

        Returns the largest smaller error, relative to the spread of a feature. Raises ConfigurationError.
        """
        if self.dtype == torch.float64:
            return 0.0
        doubles = (tensor for tensor in tensors_in(inputs) if tensor.dtype == torch.float64 and tensor.numel())
        features = (t.reshape(-1, t.shape[-1]) if t.ndim > 1 else t.view(-1, 1) for t in doubles)
        return max(map(_rounding, features), default=0.0)

    @cached_property
    def _normalization(self) -> tuple[Tensor, Tensor]:
        """Factor and summand for pixels, both (C, 1, 1). Raises ConfigurationError for an invalid mean or std."""
        is_range = all(0 <= value <= 1 for value in self.mean) and all(value > 0 for value in self.std)
        if len(self.mean) != len(self.std) or not is_range:
            raise ConfigurationError(
                f"data: the data set declares mean={list(self.mean)} and std={list(self.std)} for uint8 images. Needed "
                "are as many of one as of the other, for pixels in 0..1: means from 0 to 1, and positive deviations.",
                key="data",
            )
        mean, std = (torch.tensor(v, dtype=torch.float64).view(-1, 1, 1) for v in (self.mean, self.std))
        return (1 / (255 * std)).to(self.device, self.dtype), (-mean / std).to(self.device, self.dtype)

    def _is_images(self, tensor: Tensor, main: Tensor | None, *, is_label: bool) -> bool:
        """Whether a uint8 tensor is images. ``main``: the first input with the dimensions of images, else the first.

        Beside uint8 images, others of several channels are further images; (1, H, W) may be a mask.
        """
        channels, is_main = tensor.shape[-3] if tensor.ndim > 3 else 0, tensor is main
        fitting = (1, 3) if len(self.mean) == 1 else (len(self.mean),)
        if channels in fitting and (is_main or (channels > 1 and main is not None and main.dtype == torch.uint8)):
            return True
        if tensor.ndim < 3 or (not is_main and (tensor.ndim == 3 or is_label)):
            return False
        raise ConfigurationError(
            f"data: a sample's inputs have a uint8 tensor {tuple(tensor.shape[1:])}, which may be an image or not. "
            f"Images are (C, H, W) with C = {' or '.join(map(str, fitting))}, or with as many channels as the data "
            "set's mean and std, and are scaled to 0..1; beside another image, (1, H, W) may be a mask. Let the data "
            "set return an image as floats, and anything else as int64 or bool.",
            key="data",
        )


def _rounding(values: Tensor) -> float:
    """The largest error of values (N, F) in float32, relative to the spread of their feature.

    Raises ConfigurationError if it is more than it may be.
    """
    finite = values.isfinite()
    errors = torch.where(finite, (values.to(torch.float32).double() - values).abs(), 0)
    low, high = (torch.where(finite, values, end) for end in (torch.inf, -torch.inf))
    spread = high.amax(0) - low.amin(0)
    varies = spread > CONSTANT * torch.where(finite, values.abs(), 0).amax(0)
    lost = varies & (errors.amax(0) > ROUNDING * spread)
    if not bool(lost.any()):
        return float(torch.where(varies, errors.amax(0) / spread, 0).max())
    feature = int(lost.nonzero()[0])
    value = float(values[errors[:, feature].argmax(), feature])
    raise ConfigurationError(
        f"data: float64 inputs don't fit into float32, in which this run computes: {value:.17g} becomes "
        f"{float(torch.tensor(value, dtype=torch.float32)):.17g}, and such values differ by only "
        f"{float(spread[feature]):.3g}. Standardize them in the data set, before they are rounded, or set "
        "precision=fp64; if rounding them is right, return float32.",
        key="precision",
    )


def _contiguous(tensor: Tensor) -> Tensor:
    """The tensor, contiguous for models and losses that use ``view``."""
    return tensor.contiguous() if tensor.layout is torch.strided else tensor


def unless_repeated(tensor: Tensor) -> Tensor:
    """The tensor, contiguous unless it repeats values, as grey images do, which are converted anyway."""
    return tensor if tensor.layout is torch.strided and 0 in tensor.stride() else _contiguous(tensor)


def unless_image(tensor: Tensor) -> Tensor:
    """The tensor, contiguous unless it repeats values or is images in channels_last: ``InputTransform`` takes both."""
    is_image = tensor.dtype == torch.uint8 and tensor.ndim == 4 and tensor.stride(1) == 1
    return tensor if is_image else unless_repeated(tensor)
