"""Test-time augmentation: outputs are averaged over several views of each image.

Source of the six views and their weights: Jordan 2024 (https://arxiv.org/abs/2404.00498).
"""

from collections.abc import Callable, Iterator
from typing import Any

from torch import Tensor
from torch.nn.functional import pad

from manyheads.runner.errors import ConfigurationError
from manyheads.runner.loop.guards.guard import Guard
from manyheads.runner.task.rank.task import logits_of

Weighted = Iterator[tuple[float, Tensor]]


def flipped(images: Tensor) -> Weighted:
    """Each image, and its mirror image."""
    yield 0.5, images
    yield 0.5, images.flip(-1)


def flipped_and_shifted(images: Tensor) -> Weighted:
    """The views of ``flipped``, and of two shifts by one pixel, down and right and up and left, at half the weight."""
    height, width = images.shape[-2:]
    padded = pad(images, (1, 1, 1, 1), mode="reflect")
    shifted = (padded[..., at : at + height, at : at + width] for at in (0, 2))
    for share, view in ((0.5, images), *((0.25, shifted_view) for shifted_view in shifted)):
        for weight, variant in flipped(view):
            yield share * weight, variant


WAYS = {"flip": flipped, "flip_shift": flipped_and_shifted}


def averaged(way: str, evaluate: Callable[[Any], Any], inputs: Any) -> Any:
    """The weighted mean of the outputs of ``evaluate`` for the views of ``inputs``, (N, C, H, W).

    Of outputs that have ``logits``, these are averaged. Returns any value on a rank that does not have the outputs.
    Raises ConfigurationError if inputs are not images.
    """
    if not (isinstance(inputs, Tensor) and inputs.ndim == 4):
        raise ConfigurationError.at("trainer.tta", way, ": the model's inputs are not images. Set it to none.")
    weighted = [(weight, evaluate(view)) for weight, view in WAYS[way](inputs)]
    if weighted[0][1] is None:
        return None
    return sum(weight * logits_of(outputs) for weight, outputs in weighted)


class Views(Guard):
    """Averages an evaluation's outputs over several views of each image. ``way``: one of WAYS."""

    def __init__(self, way: str):
        self._way = way

    def evaluate(self, forward: Callable[[Any], Any], inputs: Any) -> Any:
        return averaged(self._way, forward, inputs)
