"""Initializes models from training data, such as a layer that whitens it."""

from collections.abc import Callable
from typing import Any

import torch
from torch import nn


def initialize_from_data(model: nn.Module, first: Callable[[int], Any]) -> None:
    """Call a model's ``initialize`` with the inputs of as many training samples as its ``initial_samples`` says.

    first: returns the inputs of that many samples on the CPU, the same on every rank. Models without
    ``initial_samples`` are left unchanged.
    """
    count = getattr(model, "initial_samples", None)
    if isinstance(count, int):
        with torch.no_grad():
            model.initialize(first(count))  # type: ignore[operator]
