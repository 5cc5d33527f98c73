"""Declarations of a schedule of the learning rate."""

from typing import ClassVar

from manyheads.runner.errors import ConfigurationError
from manyheads.runner.option.option import Option
from manyheads.runner.option.rules import choice, list_of, number, whole
from manyheads.runner.option.run_config import RunConfig


class SchedulerOption(Option):
    """Declarations for the keys of all schedules."""

    group = "scheduler"
    rules: ClassVar = {
        "warmup_epochs": number(at_least=0),
        "warmup_steps": whole(0),
        "final_factor": number(at_least=0),
        "min_factor": number(at_least=0),
        "every_epochs": number(above=0),
        "milestones": list_of(number(above=0)),
        "gamma": number(above=0),
        "power": number(above=0),
        "pct_start": number(above=0, below=1),
        "div_factor": number(above=0),
        "final_div_factor": number(above=0),
        "decay_share": number(above=0, below=1),
        "decay": choice("linear", "sqrt"),
        "patience": whole(0),
        "threshold": number(at_least=0),
        "interval": choice("update", "epoch"),
    }


class PlateauOption(SchedulerOption):
    """Declarations of scheduler=plateau, which needs evaluations."""

    def check_run(self, run: RunConfig) -> None:
        """Raises ConfigurationError if there are no evaluations."""
        if run.trainer.evaluate_every == 0:
            raise ConfigurationError.at(
                "scheduler",
                "plateau",
                f": checkpoint.monitor={run.checkpoint.monitor} is never measured with trainer.evaluate_every=0. Set "
                "trainer.evaluate_every=1.",
            )
