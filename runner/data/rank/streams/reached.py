"""Where the reading of a stream is, in values that a checkpoint can hold."""

import io
from typing import Any, NamedTuple

import torch


class Reached(NamedTuple):
    """``position``: of the next sample; ``begin``: the position at which pass ``number`` begins; ``state``: there."""

    position: int
    begin: int
    number: int
    state: Any


def saved(state: Any) -> Any:
    """A state as it comes back from a checkpoint. Raises an error of pickle's for what checkpoints can't hold."""
    buffer = io.BytesIO()
    torch.save(state, buffer)
    buffer.seek(0)
    return torch.load(buffer, weights_only=True)
