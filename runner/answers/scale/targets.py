"""The run on other numbers of devices: whether its batch can be divided among them, and the memory that it needs."""

from collections.abc import Collection, Sequence
from typing import NamedTuple

from manyheads.runner.answers.measure.estimated import PlannedEstimate, estimated
from manyheads.runner.config import saved
from manyheads.runner.config.freeze import checked
from manyheads.runner.errors import ConfigurationError, not_allowed
from manyheads.runner.option.run_config import RunConfig
from manyheads.runner.run.progress import each
from manyheads.runner.wording import size_in_words

MOST = 100_000  # devices
OF_RUN, OF_DEVICE = BATCH = ("run", "device")  # what keeps its number of samples


class Target(NamedTuple):
    """The run on a number of devices. ``batch``: samples in an update; ``samples``: in a micro-batch."""

    devices: int
    run: RunConfig
    batch: int
    samples: int


def counts(typed: str) -> list[int]:
    """The numbers of devices in the value of ``--devices``, ascending. Raises ConfigurationError."""
    words = typed.split(",")
    if not all(word.strip().isascii() and word.strip().isdigit() for word in words):
        raise not_allowed("--devices", typed, "whole numbers, such as 8,64,512")
    numbers = sorted({int(word) for word in words})
    if numbers[0] < 1 or numbers[-1] > MOST:
        raise not_allowed("--devices", typed, f"whole numbers from 1 to {MOST}")
    return numbers


def target_of(run: RunConfig, devices: int, batch: str) -> Target:
    """The run on this number of devices. ``batch``: what keeps its number of samples, OF_RUN or OF_DEVICE.

    Raises ConfigurationError if the batch cannot be divided, or the strategy does not allow the number.
    """
    run.parallel.exchanges(devices=devices)
    shares = devices if run.parallel.one_process else run.parallel.data_shares(ranks=devices)
    accumulation = run.trainer.grad_accumulation
    batch_size = run.data.batch_size if batch == OF_RUN else run.batch_per_rank * shares * accumulation
    samples, rest = divmod(batch_size, shares * accumulation)
    if rest or not samples:
        raise ConfigurationError.at(
            "data.batch_size",
            batch_size,
            f" cannot be divided among {devices} devices with {accumulation} micro-batches each. Set a multiple, other "
            "--devices, or --batch device.",
        )
    return Target(devices, run.changed(data={"batch_size": batch_size}), batch_size, samples)


def memory_of(targets: Sequence[Target], available: float, name: str) -> list[int | None]:
    """The bytes that the fullest device of each target needs; None if unknown. Raises ConfigurationError if none fits.

    ``available``: the bytes of a device; ``name``: the device's.
    """
    sizes = [_needed(target) for target in each(targets, "estimating the memory")]
    if all(size is not None and size > available for size in sizes):
        least = min(size for size in sizes if size is not None)
        raise ConfigurationError.at(
            "--device",
            name,
            f" has {size_in_words(available)}, and the run needs at least {size_in_words(least)} on each. Choose a "
            "larger one, more --devices, a smaller data.batch_size, or parallel=fsdp.",
        )
    return sizes


def _needed(target: Target) -> int | None:
    """The bytes that the fullest rank holds; None if this strategy cannot be rehearsed here."""
    if target.run.parallel.one_process:
        return None
    try:
        run = changed(target.run, f"launcher.nproc_per_node={target.devices}", "trainer.device=cpu")
        estimate = estimated(PlannedEstimate("", run, on_gpus=target.run.on_gpus), alone=False)
    except ConfigurationError:
        return None
    return estimate.largest.total if estimate.holds else None


def changed(run: RunConfig, *overrides: str, chosen: Collection[str] = ()) -> RunConfig:
    """A run's config with overrides. ``chosen``: the groups in which these choose another option.

    Raises ConfigurationError.
    """
    composed, folders = saved.composed(run.written, overrides, chosen={*chosen})
    return checked(composed, folders=folders)
