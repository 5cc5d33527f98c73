"""Turns the config that Hydra composed into the frozen run config, which never changes afterwards.

This happens without torch, before any process of the run starts.
"""

import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from omegaconf import DictConfig

from manyheads.runner.config.lookup import OWN, Folders
from manyheads.runner.config.schema import check
from manyheads.runner.errors import ConfigurationError, Unavailable, warn
from manyheads.runner.machine import hardware
from manyheads.runner.machine.hardware import NO_GPU
from manyheads.runner.option.declared import GROUPS
from manyheads.runner.option.run_config import RunConfig
from manyheads.runner.option.tree import Section
from manyheads.runner.run.run_folder import RunFolder

if TYPE_CHECKING:
    from manyheads.launchers.launcher_option import LauncherOption

Admit = Callable[[Section | DictConfig], None]
# The launcher is first, since strategies ask how its ranks communicate; data is last, since finding it may take long.
ORDER = sorted(GROUPS, key=lambda group: {"launcher": 0, "data": 2}.get(group, 1))


def own(config: Section | DictConfig) -> None:
    """Admits any config, since it is the user's own."""


def freeze(folder: RunFolder, composed: DictConfig, *, admit: Admit = own, timeout: float | None = None) -> RunConfig:
    """Write run.yaml and return its content. The other arguments and errors are those of ``checked``."""
    folder.refuse_second_run()
    run = checked(composed, admit=admit, timeout=timeout)
    folder.write_config(run.written)
    return run


def checked(
    composed: DictConfig, *, admit: Admit = own, timeout: float | None = None, folders: Folders = OWN
) -> RunConfig:
    """Check and complete a config, as ``freeze`` does, without writing it.

    admit: raises for a config of somebody else's that the user does not trust (``trust/admit``); timeout: minutes, if
    the launcher has none; folders: where Hydra found the config's options.

    Raises ConfigurationError for an invalid config, Unavailable for a valid one that this machine cannot run.
    """
    admit(composed)
    config = check(composed, folders)
    admit(config)  # as it will run; classes are looked up after this
    run = completed(RunConfig.of(config))
    meant = config["trainer"]["device"] != "auto" or run.on_gpus or hardware.gpus_are_hidden()
    if not meant and (why := hardware.unused_gpus()):
        warn(f"trainer.device=auto: this run trains on the CPU. {why}. Set trainer.device=cpu if that is meant.")
    if config["launcher"].get("threads_per_rank") == "auto" and (given := os.environ.get("OMP_NUM_THREADS")):
        warn(f"OMP_NUM_THREADS={given} is not used. Set launcher.threads_per_rank instead.")
    return run.changed(launcher={"timeout": timeout}) if run.launcher.timeout is None else run


def completed(run: RunConfig) -> RunConfig:
    """The config for this machine, with every ``auto`` resolved and all settings checked against each other.

    Raises ConfigurationError, or Unavailable for a valid config that this machine cannot run.
    """
    with run.launcher.on_its_machines(run) as resolved:
        run = _with_ranks(_with_device(resolved))
        refuse_unavailable(run)
        for group in ORDER:
            run = getattr(run, group).resolved(run)
        for group in ORDER:
            if group != "data":
                getattr(run, group).check_keys()
                getattr(run, group).check_run(run)
        # After Unavailable errors: a sweep skips such a job, whatever its batch.
        division = {"shares": run.data_shares, "accumulation": run.trainer.grad_accumulation}
        check_division(run.data.batch_size, **division, launcher=run.launcher)
        run.checkpoint.check_keys(run.trainer)
        if paths := run.checkpoint.resolved_keys():
            run = run.changed(checkpoint=paths)
        run.trainer.check_keys()
        run.data.check_keys()
        run.data.check_run(run)
        return run


def refuse_unavailable(run: RunConfig) -> None:
    """Raises Unavailable for options that this machine lacks."""
    for group in reversed(ORDER):  # a strategy is reported before the launcher that it brings
        if reason := getattr(run, group).unavailable():
            raise Unavailable.at(group, getattr(run, group).name, f": {reason}.")
    for name, entry in run.logger.items():
        if reason := entry.unavailable():
            raise Unavailable(f"logger.{name}: {reason}.", key=f"logger.{name}")


def _with_device(run: RunConfig) -> RunConfig:
    """The config with its device resolved. Raises Unavailable without a GPU."""
    if run.trainer.device == "auto":
        return run.changed(trainer={"device": "cuda" if hardware.gpu_names() else "cpu"})
    if run.on_gpus and not hardware.gpu_names():
        raise Unavailable.at("trainer.device", "cuda", f": {NO_GPU}. Set trainer.device=cpu or auto.")
    return run


def _with_ranks(run: RunConfig) -> RunConfig:
    """The config with its numbers of ranks and threads resolved. Raises ConfigurationError."""
    typed: dict[str, Any] = dict(run.launcher.section)  # in which values may be auto
    most = (gpus := len(hardware.gpu_names()) if run.on_gpus else 0) * hardware.ranks_per_gpu(on_gpus=run.on_gpus)
    slots = next(iter(run.launcher.machines.values()), None)
    one = run.parallel.one_process or run.launcher.one_process
    count = (slots or (1 if one else gpus or 2)) if typed["nproc_per_node"] == "auto" else typed["nproc_per_node"]
    if slots not in (None, count):
        raise ConfigurationError.at(
            "launcher.nproc_per_node",
            count,
            f": launcher.hosts or launcher.hostfile gives every machine {slots} ranks. Set it to auto.",
        )
    run = run.changed(launcher={"nproc_per_node": count})
    if one and run.launcher.ranks > 1:
        alone = run.parallel.one_process
        cause = f"parallel={run.parallel.name}" if alone else f"launcher={run.launcher.name}"
        remedy = "parallel=ddp" if alone else "launcher=spawn"
        raise ConfigurationError.at(
            "launcher.nproc_per_node", count, f": {cause} runs in one process. Set it to 1 or auto, or {remedy}."
        )
    if gpus and run.launcher.device_number(count - 1, gpus=gpus) >= gpus and slots is None:
        raise ConfigurationError.at(
            "launcher.nproc_per_node",
            count,
            f": there are more ranks than GPUs ({gpus} visible). Set it to {most} or less, or trainer.device=cpu.",
        )
    return run.changed(launcher=run.launcher.divided_cores(on_gpus=run.on_gpus))


def check_division(size: int, *, shares: int, accumulation: int, launcher: "LauncherOption") -> None:
    """Raises ConfigurationError if the global batch can't be divided among the ranks and their micro-batches.

    ``size``: in samples; ``shares``: the data-parallel ranks; ``accumulation``: micro-batches on each.
    """
    parts = shares * accumulation
    if size % parts:
        lower, upper = size // parts * parts, (size // parts + 1) * parts
        nearest = f"{lower} or {upper}" if lower else str(upper)
        is_fixed = bool(launcher.machines)  # by a list of hosts
        instead = "" if is_fixed else " or ".join(map(str, _fitting(launcher.nproc_per_node, size, parts)))
        kind = "ranks" if shares == launcher.ranks else "data-parallel ranks"
        instead = instead and f"; or with this batch launcher.nproc_per_node={instead}"
        raise ConfigurationError.at(
            "data.batch_size",
            size,
            f" is the global batch, which can't be divided among {shares} {kind} x "
            f"{accumulation} micro-batches. The nearest values that work: data.batch_size={nearest}{instead}.",
        )


def _fitting(count: int, size: int, parts: int) -> list[int]:
    """The nearest lower and higher numbers of ranks than ``count`` that divide the batch."""
    fits = [n for n in range(2, 2 * count + 1) if size % (n * parts // count) == 0]
    return [*[n for n in fits if n < count][-1:], *[n for n in fits if n > count][:1]]
