"""Resolves what depends on the machines of a run: its device, the number of its ranks, and their threads."""

from typing import Any

from manyheads.runner.errors import ConfigurationError, Unavailable
from manyheads.runner.machine import hardware
from manyheads.runner.machine.hardware import NO_GPU
from manyheads.runner.option.run_config import RunConfig


def on_machine(run: RunConfig) -> RunConfig:
    """The config with its device and ranks resolved. Raises ConfigurationError, or Unavailable without a GPU."""
    return _with_ranks(_with_device(run))


def _with_device(run: RunConfig) -> RunConfig:
    if run.trainer.device == "auto":
        return run.changed(trainer={"device": "cuda" if hardware.gpu_names() else "cpu"})
    if run.on_gpus and not hardware.gpu_names():
        raise Unavailable.at("trainer.device", "cuda", f": {NO_GPU}. Set trainer.device=cpu or auto.")
    return run


def _with_ranks(run: RunConfig) -> RunConfig:
    typed: dict[str, Any] = dict(run.launcher.section)  # in which values may be auto
    gpus = len(hardware.gpu_names()) if run.on_gpus else 0
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
    if gpus and count > gpus and slots is None:
        raise ConfigurationError.at(
            "launcher.nproc_per_node",
            count,
            f": there are more ranks than GPUs ({gpus} visible). Set it to {gpus} or less, or trainer.device=cpu.",
        )
    threads = hardware.cores_for_each(count) if typed["threads_per_rank"] == "auto" else typed["threads_per_rank"]
    resolved: dict[str, Any] = {"threads_per_rank": threads}
    if run.launcher.wait_policy == "auto":
        resolved["wait_policy"] = "default" if count * threads <= hardware.cpu_cores() else "brief"
    return run.changed(launcher=resolved)
