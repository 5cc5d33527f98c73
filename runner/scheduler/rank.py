"""Learning rates as a function of the update's number, so that a resumed run needs no history."""

import math
from typing import Any

from torch.optim import Optimizer


class Schedule:
    """The constant case with warm-up; ``factor`` is what the kinds differ in.

    warmup_epochs: linear rise from zero, may be a fraction. updates_per_epoch, total_updates: of this run.
    """

    def __init__(self, optimizer: Optimizer, *, updates_per_epoch: int, total_updates: int, warmup_epochs: float):
        self._optimizer = optimizer  # not its param_groups, which load_state_dict replaces
        self._base = [group["lr"] for group in optimizer.param_groups]
        self._warmup = round(warmup_epochs * updates_per_epoch)
        self.updates_per_epoch, self.total_updates = updates_per_epoch, total_updates

    def set(self, update: int) -> None:
        """Set the learning rates for update number ``update``, counted from 0."""
        rise = min(1.0, (update + 1) / self._warmup) if self._warmup else 1.0
        factor = rise * self.factor(update)
        for group, base in zip(self._optimizer.param_groups, self._base, strict=True):
            group["lr"] = base * factor

    def factor(self, update: int) -> float:
        """Share of the learning rate at update ``update``, warm-up aside."""
        return 1.0

    @property
    def lr(self) -> float:
        """The first parameter group's learning rate."""
        return self._optimizer.param_groups[0]["lr"]


class Constant(Schedule):
    """The same learning rate throughout."""


class Step(Schedule):
    """Multiplied by ``gamma`` every ``every_epochs`` epochs."""

    def __init__(self, optimizer: Optimizer, *, every_epochs: float, gamma: float, **common: Any) -> None:
        super().__init__(optimizer, **common)
        self._every, self._gamma = every_epochs * self.updates_per_epoch, gamma

    def factor(self, update: int) -> float:
        return self._gamma ** int(update / self._every)


class Cosine(Schedule):
    """Half a cosine from 1 to ``final_factor`` over the updates after the warm-up.

    Source: Loshchilov and Hutter 2016 (https://arxiv.org/abs/1608.03983), without restarts.
    """

    def __init__(self, optimizer: Optimizer, *, final_factor: float, **common: Any) -> None:
        super().__init__(optimizer, **common)
        self._final = final_factor

    def factor(self, update: int) -> float:
        length = max(1, self.total_updates - self._warmup)
        done = min(1.0, max(0.0, (update - self._warmup) / length))
        return self._final + (1 - self._final) * (1 + math.cos(math.pi * done)) / 2
