"""Learning rates as a function of the update's number, so that a resumed run needs no history."""

import math
from collections.abc import Sequence
from typing import Any

from torch.optim import Optimizer

from manyheads.runner.errors import ConfigurationError
from manyheads.runner.run.checkpoint_places import StateDict


class Schedule:
    """Base class of schedules: constant with warm-up; subclasses override ``factor``.

    updates_per_epoch, total_updates: of this run. warmup_epochs (may be a fraction) or warmup_steps (in updates):
    length of the linear rise from zero. Raises ConfigurationError if both are given.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        *,
        updates_per_epoch: int,
        total_updates: int,
        warmup_epochs: float = 0,
        warmup_steps: int = 0,
    ):
        if warmup_epochs and warmup_steps:
            raise ConfigurationError.at(
                "scheduler.warmup_epochs",
                warmup_epochs,
                f" and scheduler.warmup_steps={warmup_steps} are the same "
                "setting in different units. Set only one of them.",
            )
        self._optimizer = optimizer  # not its param_groups, which load_state_dict replaces
        self._base = [group["lr"] for group in optimizer.param_groups]
        self._warmup = warmup_steps or round(warmup_epochs * updates_per_epoch)
        self.updates_per_epoch, self.total_updates = updates_per_epoch, total_updates

    def set(self, update: int) -> None:
        """Set the learning rates for update number ``update``, counted from 0."""
        factor = self.rise(update) * self.factor(update)
        for group, base in zip(self._optimizer.param_groups, self._base, strict=True):
            group["lr"] = base * factor

    def factor(self, update: int) -> float:
        """The fraction of the learning rate at update ``update``, apart from warm-up."""
        return 1.0

    def evaluated(self, score: float | None, direction: str) -> None:
        """Record the monitored metric of an epoch, None if it was not measured.

        score: the same on every rank; direction: "max" or "min", whichever is better.
        """

    @property
    def reads_monitor(self) -> bool:
        """Whether it depends on the monitored metric."""
        return type(self).evaluated is not Schedule.evaluated

    def forget_best(self) -> None:
        """Forget values of the monitored metric, with which later ones cannot be compared."""

    def state_dict(self) -> StateDict:
        """State that does not follow from the update's number, for the checkpoint."""
        return {}

    def load_state_dict(self, state: StateDict) -> None:
        """Restore the result of ``state_dict``; ignored if another kind of schedule wrote it."""

    def rise(self, update: int) -> float:
        """The fraction of the learning rate that the warm-up has reached."""
        return min(1.0, (update + 1) / self._warmup) if self._warmup else 1.0

    def done(self, update: int) -> float:
        """The fraction of the updates after the warm-up that are done, from 0 to 1."""
        length = max(1, self.total_updates - self._warmup)
        return min(1.0, max(0.0, (update - self._warmup) / length))

    @property
    def lr(self) -> float:
        """The first parameter group's learning rate."""
        return self._optimizer.param_groups[0]["lr"]


class Constant(Schedule):
    """The same learning rate throughout."""


class Step(Schedule):
    """The learning rate is multiplied by ``gamma`` every ``every_epochs`` epochs."""

    def __init__(self, optimizer: Optimizer, *, every_epochs: float, gamma: float, **common: Any) -> None:
        super().__init__(optimizer, **common)
        self._every, self._gamma = every_epochs * self.updates_per_epoch, gamma

    def factor(self, update: int) -> float:
        return self._gamma ** int(update / self._every)


class MultiStep(Schedule):
    """The learning rate is multiplied by ``gamma`` at each of the ``milestones``, in epochs."""

    def __init__(self, optimizer: Optimizer, *, milestones: Sequence[float], gamma: float, **common: Any) -> None:
        super().__init__(optimizer, **common)
        self._milestones, self._gamma = [epoch * self.updates_per_epoch for epoch in milestones], gamma

    def factor(self, update: int) -> float:
        return self._gamma ** sum(update >= milestone for milestone in self._milestones)


class Cosine(Schedule):
    """Half a cosine from 1 to ``final_factor`` over the updates after the warm-up.

    Source: Loshchilov and Hutter 2016 (https://arxiv.org/abs/1608.03983), without restarts.
    """

    def __init__(self, optimizer: Optimizer, *, final_factor: float, **common: Any) -> None:
        super().__init__(optimizer, **common)
        self._final = final_factor

    def factor(self, update: int) -> float:
        return self._final + (1 - self._final) * (1 + math.cos(math.pi * self.done(update))) / 2


class Polynomial(Schedule):
    """From 1 to ``final_factor`` as (1 - t) to the ``power``, t from 0 to 1 over the updates after the warm-up."""

    def __init__(self, optimizer: Optimizer, *, power: float, final_factor: float, **common: Any) -> None:
        super().__init__(optimizer, **common)
        self._power, self._final = power, final_factor

    def factor(self, update: int) -> float:
        return self._final + (1 - self._final) * (1 - self.done(update)) ** self._power


class OneCycle(Schedule):
    """A cosine up to the learning rate in the fraction ``pct_start`` of the updates, then one down.

    It starts at 1 / ``div_factor`` of the learning rate and ends at 1 / (``div_factor`` * ``final_div_factor``), as in
    torch's OneCycleLR. Source: Smith and Topin 2017 (https://arxiv.org/abs/1708.07120).
    """

    def __init__(
        self, optimizer: Optimizer, *, pct_start: float, div_factor: float, final_div_factor: float, **common: Any
    ) -> None:
        super().__init__(optimizer, **common)
        self._first, self._final = 1 / div_factor, 1 / (div_factor * final_div_factor)
        self._length = max(1, self.total_updates - self._warmup)
        self._top = pct_start * self._length - 1

    def factor(self, update: int) -> float:
        at = max(0, update - self._warmup)
        if at <= self._top:
            return _on_cosine(self._first, 1.0, at / self._top if self._top else 1.0)
        return _on_cosine(1.0, self._final, min(1.0, (at - self._top) / (self._length - 1 - self._top)))


class WarmupStableDecay(Schedule):
    """Constant, then decaying to ``final_factor`` over the last ``decay_share`` of all updates.

    decay: linear, or sqrt, which is 1 - sqrt(t). Sources: Hu et al. 2024 (https://arxiv.org/abs/2404.06395), and for
    the shapes Hägele et al. 2024 (https://arxiv.org/abs/2405.18392).
    """

    def __init__(
        self, optimizer: Optimizer, *, decay_share: float, decay: str, final_factor: float, **common: Any
    ) -> None:
        super().__init__(optimizer, **common)
        self._length, self._final = max(1, round(decay_share * self.total_updates)), final_factor
        self._shape = {"linear": lambda done: done, "sqrt": math.sqrt}[decay]

    def factor(self, update: int) -> float:
        done = min(1.0, max(0.0, 1 - (self.total_updates - update) / self._length))
        return 1 - (1 - self._final) * self._shape(done)


def _on_cosine(start: float, end: float, done: float) -> float:
    """Half a cosine from ``start`` to ``end``; ``done``: from 0 to 1."""
    return end + (start - end) * (1 + math.cos(math.pi * done)) / 2
