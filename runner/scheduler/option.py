"""What a schedule of the learning rate declares."""

from typing import ClassVar

from manyheads.runner.option.base import Option
from manyheads.runner.option.rules import number


class SchedulerOption(Option):
    """The keys of all schedules."""

    rules: ClassVar = {
        "warmup_epochs": number(at_least=0),
        "final_factor": number(at_least=0),
        "every_epochs": number(above=0),
        "gamma": number(above=0),
    }
