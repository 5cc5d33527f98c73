"""Which update a task with its own step gets, and what it does not work with."""

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from manyheads.runner.errors import ConfigurationError
from manyheads.runner.loop.own_step.update import SteppingUpdate
from manyheads.runner.option.trainer_section import TrainerSection

if TYPE_CHECKING:
    from manyheads.runner.parallel.parallel_option import ParallelOption
    from manyheads.runner.precision.precision_option import PrecisionOption


def kind_of(
    parallel: "ParallelOption", precision: "PrecisionOption", trainer: TrainerSection, *, seed: int
) -> Callable[..., SteppingUpdate]:
    """What builds the update. Raises ConfigurationError for settings that a step does not work with."""
    strategy = None if parallel.own_steps else parallel.name
    compression = None if parallel.compression == "none" else parallel.compression
    reloading = precision.name if precision.reloads_optimizer() is not None else None
    compiled = trainer.compile if trainer.compile != "none" and not trainer.compile_units else None
    unsuited = [  # keys, with their values, or None if a step works with them, why not, and what to set
        ("parallel", strategy, "orders or watches the passes itself", "it to single, ddp, zero1 or fsdp"),
        ("parallel.compression", compression, "acts on passes of the complete model", "it to none"),
        ("precision", reloading, "changes the optimizer itself", "it to amp"),
        ("trainer.compile", compiled, "compiles the complete model", "trainer.compile_units=[auto]"),
        ("trainer.sam_rho", trainer.sam_rho, "repeats passes", "it to null"),
        ("trainer.verify_every", trainer.verify_every or None, "repeats passes", "it to 0"),
        ("trainer.on_spike", trainer.on_spike, "compares losses before the step", "it to null"),
    ]
    for key, value, why, remedy in unsuited:
        if value is not None:
            raise ConfigurationError.at(key, value, f" {why}, and this task has a step of its own. Set {remedy}.")
    return partial(SteppingUpdate, seed=seed)
