"""Which update a task with its own step gets, and what it does not work with."""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

from manyheads.runner.errors import ConfigurationError
from manyheads.runner.loop.own_step.update import SteppingUpdate
from manyheads.runner.option.run_config import RunConfig


class Unsuited(NamedTuple):
    """A setting that a step does not work with. ``value``: of the key if it is one, else None."""

    key: str
    value: Callable[[RunConfig], Any]
    why: str
    remedy: str


def _compiles(run: RunConfig) -> str | None:
    return run.trainer.compile if run.trainer.compile != "none" and not run.trainer.compile_units else None


UNSUITED = (
    Unsuited(
        "parallel",
        lambda run: None if run.parallel.own_steps else run.parallel.name,
        "orders or watches the passes itself",
        "it to single, ddp, zero1 or fsdp",
    ),
    Unsuited(
        "parallel.compression",
        lambda run: None if run.parallel.compression == "none" else run.parallel.compression,
        "acts on passes of the complete model",
        "it to none",
    ),
    Unsuited(
        "precision",
        lambda run: run.precision.name if run.precision.reloads_optimizer() is not None else None,
        "changes the optimizer itself",
        "it to amp",
    ),
    Unsuited("trainer.compile", _compiles, "compiles the complete model", "trainer.compile_units=[auto]"),
    Unsuited("trainer.sam_rho", lambda run: run.trainer.sam_rho, "repeats passes", "it to null"),
    Unsuited("trainer.verify_every", lambda run: run.trainer.verify_every or None, "repeats passes", "it to 0"),
    Unsuited("trainer.on_spike", lambda run: run.trainer.on_spike, "compares losses before the step", "it to null"),
)


def kind_of(run: RunConfig) -> Callable[..., SteppingUpdate]:
    """What builds the update. Raises ConfigurationError for settings that a step does not work with."""
    for key, value_of, why, remedy in UNSUITED:
        if (value := value_of(run)) is not None:
            raise ConfigurationError.at(key, value, f" {why}, and this task has a step of its own. Set {remedy}.")
    return partial(SteppingUpdate, seed=run.seed)
