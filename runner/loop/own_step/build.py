"""Which update a task with its own step gets, and what it does not work with."""

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from manyheads.runner.errors import ConfigurationError
from manyheads.runner.loop.own_step.update import SteppingUpdate
from manyheads.runner.option.trainer_section import TrainerSection

if TYPE_CHECKING:
    from manyheads.runner.parallel.parallel_option import ParallelOption
    from manyheads.runner.precision.precision_option import PrecisionOption


class Unsuited(NamedTuple):
    """A setting that a step does not work with. ``value``: of the key if it is one, else None."""

    key: str
    value: Callable[["ParallelOption", "PrecisionOption", TrainerSection], Any]
    why: str
    remedy: str


def _compiles(parallel: "ParallelOption", precision: "PrecisionOption", trainer: TrainerSection) -> str | None:
    return trainer.compile if trainer.compile != "none" and not trainer.compile_units else None


UNSUITED = (
    Unsuited(
        "parallel",
        lambda parallel, precision, trainer: None if parallel.own_steps else parallel.name,
        "orders or watches the passes itself",
        "it to single, ddp, zero1 or fsdp",
    ),
    Unsuited(
        "parallel.compression",
        lambda parallel, precision, trainer: None if parallel.compression == "none" else parallel.compression,
        "acts on passes of the complete model",
        "it to none",
    ),
    Unsuited(
        "precision",
        lambda parallel, precision, trainer: precision.name if precision.reloads_optimizer() is not None else None,
        "changes the optimizer itself",
        "it to amp",
    ),
    Unsuited("trainer.compile", _compiles, "compiles the complete model", "trainer.compile_units=[auto]"),
    Unsuited("trainer.sam_rho", lambda parallel, precision, trainer: trainer.sam_rho, "repeats passes", "it to null"),
    Unsuited(
        "trainer.verify_every",
        lambda parallel, precision, trainer: trainer.verify_every or None,
        "repeats passes",
        "it to 0",
    ),
    Unsuited(
        "trainer.on_spike",
        lambda parallel, precision, trainer: trainer.on_spike,
        "compares losses before the step",
        "it to null",
    ),
)


def kind_of(
    parallel: "ParallelOption", precision: "PrecisionOption", trainer: TrainerSection, *, seed: int
) -> Callable[..., SteppingUpdate]:
    """What builds the update. Raises ConfigurationError for settings that a step does not work with."""
    for key, value_of, why, remedy in UNSUITED:
        if (value := value_of(parallel, precision, trainer)) is not None:
            raise ConfigurationError.at(key, value, f" {why}, and this task has a step of its own. Set {remedy}.")
    return partial(SteppingUpdate, seed=seed)
