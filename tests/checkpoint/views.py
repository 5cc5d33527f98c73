"""What a save is given: a state of training that is the same whole and in shares, and a rank that is alone."""

from types import SimpleNamespace
from typing import Any

import torch

EMPTY = torch.empty


class Given:
    """The view of ``state``."""

    def __init__(self, state: dict[str, Any]):
        self._state = state

    def whole(self) -> dict[str, Any]:
        return self._state

    def shares(self) -> dict[str, Any]:
        return self._state


class OneRank:
    """The group of a rank that is alone."""

    rank, world_size, records, shares_model = 0, 1, True, False

    def gather(self, value: Any) -> list[Any]:
        return [value]


def seen_on_gpu(monkeypatch: Any) -> list[torch.device]:
    """Let tensors of the CPU look as if they were on a GPU, without its driver. The list gets each wait for it."""
    waits: list[torch.device] = []
    stream = lambda device: SimpleNamespace(synchronize=lambda: waits.append(device))  # noqa: E731
    empty = lambda *shape, pin_memory=False, **kwargs: EMPTY(*shape, **kwargs)  # noqa: E731
    monkeypatch.setattr(torch.Tensor, "is_cuda", property(lambda tensor: True), raising=False)
    monkeypatch.setattr(torch.cuda, "current_stream", stream)
    monkeypatch.setattr(torch, "empty", empty)
    return waits
