"""Builds the schedule of a run: one of ours, one of the user's own, or one of torch's, by the update's number."""

import inspect
from typing import Any

import torch
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler, ReduceLROnPlateau

from manyheads.runner.errors import ConfigurationError
from manyheads.runner.option.locate import call, combined, load, signature
from manyheads.runner.scheduler.rank.schedules import Schedule
from manyheads.runner.scheduler.scheduler_option import SchedulerOption

WARMUP = {"warmup_epochs", "warmup_steps"}
PARTS = ("lr", "momentum", "betas")  # of an optimizer's settings: those that torch's schedulers change


def build_schedule(option: SchedulerOption, optimizer: Optimizer, **updates: int) -> Schedule:
    """The schedule that the option describes. ``updates``: updates_per_epoch and total_updates.

    Of several optimizers, each has its own. Raises ConfigurationError for a class that is not a schedule, and for
    arguments that it rejects.
    """
    if hasattr(optimizer, "parts"):
        return load("manyheads.runner.scheduler.rank.by_part.ByPart")(option, optimizer, build_schedule, **updates)
    target, kind, options = option.target, option.kind, option.arguments()
    if isinstance(kind, type) and issubclass(kind, ReduceLROnPlateau):
        raise ConfigurationError.at(
            "scheduler._target_", target, " needs a metric. Set scheduler=plateau, which is the same schedule."
        )
    interval = options.pop("interval", "update")
    if isinstance(kind, type) and issubclass(kind, LRScheduler):
        warmup = {name: options.pop(name) for name in WARMUP & options.keys()}
        return OfTorch(optimizer, kind, options, interval=interval, **warmup, **updates)
    if "interval" in signature(kind).parameters:
        options["interval"] = interval
    schedule = call("scheduler", target, kind, optimizer, **combined("scheduler", options, updates))
    if not isinstance(schedule, Schedule):
        raise ConfigurationError.at(
            "scheduler._target_",
            target,
            f" is not a schedule. Derive the class from {Schedule.__module__}.Schedule, "
            "or name one of torch.optim.lr_scheduler.",
        )
    return schedule


class OfTorch(Schedule):
    """A scheduler of class ``kind`` with these ``options``, stepped once per ``interval``: "update" or "epoch".

    It works on a stand-in for the optimizer, from the first update on, so a resumed run needs no state. Raises
    ConfigurationError if the class rejects its arguments.
    """

    def __init__(
        self, optimizer: Optimizer, kind: type[LRScheduler], options: dict[str, Any], *, interval: str, **common: Any
    ) -> None:
        super().__init__(optimizer, **common)
        self._kind, self._options = kind, options
        if "total_steps" in inspect.signature(kind).parameters:
            self._options = {"total_steps": self.total_updates, **options}
        self._length = 1 if interval == "update" else self.updates_per_epoch
        self._settings = [{name: group[name] for name in PARTS if name in group} for group in optimizer.param_groups]
        self._begin()

    def set(self, update: int) -> None:
        if update // self._length < self._at:
            self._begin()
        while self._at < update // self._length:
            self._scheduler.step()
            self._at += 1
        rise = self.rise(update)
        for group, source in zip(self._optimizer.param_groups, self._scheduler.optimizer.param_groups, strict=True):
            group.update({name: source[name] for name in PARTS if name in source})
            group["lr"] *= rise

    def _begin(self) -> None:
        self._at, optimizer = 0, _StandIn(self._settings, self._optimizer.defaults)
        try:
            self._scheduler = self._kind(optimizer, **self._options)
        except (TypeError, ValueError, KeyError) as error:
            raise ConfigurationError.at(
                "scheduler._target_",
                f"{self._kind.__module__}.{self._kind.__name__}",
                f" rejects its arguments: {error}. Set them with scheduler.<argument>=..., adding a + for a new key.",
            ) from None
        optimizer.step()  # schedulers warn if no step precedes theirs


class _StandIn(Optimizer):
    def __init__(self, settings: list[dict[str, Any]], defaults: dict[str, Any]):
        super().__init__([{**group, "params": [torch.zeros(1)]} for group in settings], dict(defaults))

    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        """Nothing is trained."""
