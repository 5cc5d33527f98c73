"""Builds the schedule of a run: one of ours, one of the user's own, or one of torch's."""

from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler, ReduceLROnPlateau

from manyheads.runner.errors import ConfigurationError
from manyheads.runner.option.locate import call, signature
from manyheads.runner.scheduler.rank.schedules import Schedule
from manyheads.runner.scheduler.rank.torch_schedule import OfTorch
from manyheads.runner.scheduler.scheduler_option import SchedulerOption

WARMUP = {"warmup_epochs", "warmup_steps"}


def build_schedule(option: SchedulerOption, optimizer: Optimizer, **updates: int) -> Schedule:
    """The schedule that the option describes. ``updates``: updates_per_epoch and total_updates.

    Raises ConfigurationError for a class that is not a schedule, and for arguments that it rejects.
    """
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
    made = call("scheduler", target, kind, optimizer, **options, **updates)
    if not isinstance(made, Schedule):
        raise ConfigurationError.at(
            "scheduler._target_",
            target,
            f" is not a schedule. Derive the class from {Schedule.__module__}.Schedule, "
            "or name one of torch.optim.lr_scheduler.",
        )
    return made
