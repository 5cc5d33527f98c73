"""From an image to the model's input: the same pixels as in the run's own evaluation."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from manyheads.runner.data.links import content_of
from manyheads.runner.data.rank.image_file import opened
from manyheads.runner.data.rank.in_memory import resize
from manyheads.runner.data.rank.input_transform import InputTransform
from manyheads.runner.data.rank.photos import Picture, for_evaluation
from manyheads.runner.errors import ConfigurationError
from manyheads.runner.run.model_description import Description, Steps

CPU = torch.device("cpu")


class Preprocess:
    """Called with an image, it returns the model's input, (C, H, W) float32.

    An image is a PIL image, the path of a file, a uint8 array (H, W) or (H, W, C), or a uint8 tensor (C, H, W). Floats
    are taken as the data set's own output, and are unchanged.
    """

    def __init__(self, description: Description):
        self._about = description
        mean, std = description.mean or (0.0,), description.std or (1.0,)
        self._transform = InputTransform(CPU, torch.float32, False, mean, std)

    def __call__(self, image: Any) -> Tensor:
        """Raises ConfigurationError if it is not an image, or if the data set does not declare its preprocessing."""
        if isinstance(image, Tensor) and image.is_floating_point():
            return image.to(CPU, torch.float32)
        return self.normalized(self.sample(image))

    def sample(self, image: Any) -> Tensor:
        """The sample as the data set gives it to a batch, in eight bits: (C, H, W) uint8."""
        steps, shape = self._about.preprocess, self._about.shape
        if steps is None:
            return self._as_it_is(image)
        pixels = _pixels(image, steps)
        if steps.resize == "shorter_side":
            sample = for_evaluation(pixels, steps.size, steps.crop)
        elif pixels.shape[1:] == (steps.size, steps.size):
            sample = pixels
        else:
            sample = resize(pixels[None], steps.size)[0]
        return sample.expand(shape[0], -1, -1) if shape and len(shape) == 3 and len(sample) == 1 else sample

    def normalized(self, images: Tensor) -> Tensor:
        """Normalize uint8 images, (..., C, H, W), to the float32 that the model expects. Raises ConfigurationError."""
        about = self._about
        if about.dtype == "uint8" and about.shape is not None and len(about.shape) < 3:
            return images  # bytes that are no image
        if about.dtype not in (None, "uint8") and (about.mean is None or about.std is None):
            raise ConfigurationError(
                "this run's data set turns images into floats without declaring mean and std. Pass what it would "
                "return, as a float tensor, or train with a data set that declares them "
                "(docs/using-a-trained-model.md)."
            )
        return self._transform.prepare(images)

    def batch(self, images: Sequence[Any]) -> Tensor:
        """Several images: (N, C, H, W) float32. Raises ConfigurationError if their sizes then differ."""
        inputs = [self(image) for image in images]
        if len({image.shape for image in inputs}) > 1:
            sizes = ", ".join(sorted({"x".join(map(str, image.shape)) for image in inputs}))
            raise ConfigurationError(f"these images end up with different sizes ({sizes}). Pass them one by one.")
        return torch.stack(inputs)

    def _as_it_is(self, image: Any) -> Tensor:
        sample = torch.from_numpy(image) if isinstance(image, np.ndarray) else image
        if isinstance(sample, Tensor) and self._about.shape in (None, tuple(sample.shape)):
            return sample
        shape = "x".join(map(str, self._about.shape or ())) or "of any shape"
        raise ConfigurationError(
            "this run's data set does not declare how an image becomes a sample. Pass tensors as it returns them "
            f"({shape}), or train with a data set that declares preprocess (docs/using-a-trained-model.md)."
        )


def _pixels(image: Any, steps: Steps) -> Tensor:
    """An image in ``steps.mode``: (1 or 3, H, W) uint8."""
    from PIL import Image, UnidentifiedImageError

    if isinstance(image, (str, Path)):
        if steps.mode == "RGB":
            return Picture(image).decoded()  # a JPEG by the decoder that the run used
        try:
            with opened(content_of(image)) as file:
                return _pixels(file, steps)
        except UnidentifiedImageError:
            raise ValueError("it is not an image, or of an unknown format") from None
    if isinstance(image, Tensor):
        image = image.cpu().movedim(0, -1).numpy() if image.ndim == 3 else image.cpu().numpy()
    if isinstance(image, np.ndarray):
        if image.dtype != np.uint8 or image.ndim not in (2, 3):
            raise ConfigurationError(
                f"an array of {image.dtype} {image.shape} is not an image. Allowed: uint8 arrays (H, W) or (H, W, C)."
            )
        image = Image.fromarray(np.ascontiguousarray(image[..., 0] if image.shape[2:] == (1,) else image))
    if not isinstance(image, Image.Image):
        raise ConfigurationError(
            f"a {type(image).__name__} is not an image. Allowed: PIL images, paths, uint8 arrays and tensors."
        )
    pixels = torch.from_numpy(np.array(image.convert(steps.mode)))
    return pixels[None] if pixels.ndim == 2 else pixels.permute(2, 0, 1)
