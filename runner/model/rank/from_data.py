"""Models that begin with what they have seen of the training data, such as a layer that whitens it."""

from collections.abc import Callable
from typing import Any

import torch
from torch import nn


def initialize_from_data(model: nn.Module, first: Callable[[int], Any]) -> None:
    """Show a model that has ``initial_samples`` as many training samples' inputs, by its method ``initialize``.

    first: gives the inputs of so many samples on the CPU, the same on every rank. Other models are left alone.
    """
    count = getattr(model, "initial_samples", None)
    if isinstance(count, int):
        with torch.no_grad():
            model.initialize(first(count))  # type: ignore[operator]
