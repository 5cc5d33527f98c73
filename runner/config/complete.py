"""Completes a config for this machine: resolves every ``auto``, once, and refuses what cannot work.

This happens without torch, before any process starts. Errors name the key to change. Each option declares its own
requirements (``option/base.py``).
"""

from typing import Any

from manyheads.runner.config.checks import check_checkpoint, check_graphs, check_trainer
from manyheads.runner.config.lookup import OWN, Folders, read_option
from manyheads.runner.machine import hardware
from manyheads.runner.machine.hardware import NO_GPU
from manyheads.runner.option.declared import ENTRIES, GROUPS, declared
from manyheads.runner.run.errors import ConfigurationError, Unavailable
from manyheads.runner.run.layout import machines, ranks

# The launcher decides how its ranks communicate, which strategies ask for.
ORDER = sorted(GROUPS, key=lambda group: group != "launcher")


def complete(config: dict[str, Any]) -> dict[str, Any]:
    """Resolve every ``auto`` in place and check that the keys work together. Raises ConfigurationError."""
    with declared("launcher", config["launcher"]).on_its_machines(config):
        return _completed(config)


def _completed(config: dict[str, Any]) -> dict[str, Any]:
    _decide_device(config)
    _decide_ranks(config)
    for group in reversed(ORDER):  # a strategy is reported before the launcher that it brings
        if reason := declared(group, config[group]).unavailable():
            raise Unavailable(f"{group}={config[group]['name']}: {reason}.")
    for name, entry in config["logger"].items():
        if reason := declared("logger", entry).unavailable():
            raise Unavailable(f"logger.{name}: {reason}.")
    for group in ORDER:
        if group != "data":  # checking it may take long
            declared(group, config[group]).complete(config)
    _check_batch(config)  # after what is missing: a sweep skips such a job, whatever its batch
    check_checkpoint(config)
    check_graphs(config["trainer"])
    check_trainer(config)
    declared("data", config["data"]).complete(config)
    return config


def unavailable(group: str, option: str, folders: Folders = OWN) -> str | None:
    """Why an option cannot run on this machine, and how to install it; None if it can."""
    section = read_option(group, option, folders)
    sections = section.values() if group in ENTRIES else [section]
    return next((reason for each in sections if (reason := declared(group, each).unavailable())), None)


def gpus_used(config: dict[str, Any]) -> int:
    """Number of GPUs of this machine that a completed run config uses, from the first."""
    if config["trainer"]["device"] == "cpu":
        return 0
    count = declared("parallel", config["parallel"]).gpus_used(config)
    return declared("launcher", config["launcher"]).gpus_here(count)


def batch_per_rank(config: dict[str, Any]) -> int:
    """Number of samples in one rank's micro-batch."""
    return config["data"]["batch_size"] // (_shares(config) * config["trainer"]["grad_accumulation"])


def fits(config: dict[str, Any], count: int) -> bool:
    """Whether the batch of a completed run config can be divided among ``count`` ranks."""
    launcher = {**config["launcher"], "nproc_per_node": count, "hosts": None, "hostfile": None}
    launcher |= {"nodes": None, "rendezvous": None}
    try:
        shares = _shares({**config, "launcher": launcher})
    except ConfigurationError:
        return False
    return shares > 0 and config["data"]["batch_size"] % (shares * config["trainer"]["grad_accumulation"]) == 0


def _shares(config: dict[str, Any]) -> int:
    return declared("parallel", config["parallel"]).data_shares(config)


def _decide_device(config: dict[str, Any]) -> None:
    trainer = config["trainer"]
    if trainer["device"] == "auto":
        trainer["device"] = "cuda" if hardware.gpu_names() else "cpu"
    elif trainer["device"] == "cuda" and not hardware.gpu_names():
        raise Unavailable(f"trainer.device=cuda: {NO_GPU}. Set trainer.device=cpu or auto.")


def _decide_ranks(config: dict[str, Any]) -> None:
    launcher, strategy = config["launcher"], config["parallel"]
    gpus = len(hardware.gpu_names()) if config["trainer"]["device"] == "cuda" else 0
    alone = declared("parallel", strategy).one_process
    one = alone or declared("launcher", launcher).one_process
    slots = next(iter(machines(config).values()), None)
    if launcher["nproc_per_node"] == "auto":
        launcher["nproc_per_node"] = slots or (1 if one else gpus or 2)
    count = launcher["nproc_per_node"]
    if slots not in (None, count):
        raise ConfigurationError(
            f"launcher.nproc_per_node={count}: launcher.hosts or launcher.hostfile gives every machine {slots} ranks. "
            "Set it to auto."
        )
    if one and ranks(config) > 1:
        cause = f"parallel={strategy['name']}" if alone else f"launcher={launcher['name']}"
        remedy = "parallel=ddp" if alone else "launcher=spawn"
        raise ConfigurationError(
            f"launcher.nproc_per_node={count}: {cause} runs in one process. Set it to 1 or auto, or {remedy}."
        )
    if gpus and count > gpus and slots is None:
        raise ConfigurationError(
            f"launcher.nproc_per_node={count}: there are more ranks than GPUs ({gpus} visible). "
            f"Set it to {gpus} or less, or trainer.device=cpu."
        )
    if launcher["threads_per_rank"] == "auto":
        launcher["threads_per_rank"] = hardware.cores_for_each(count)
    if launcher.get("wait_policy") == "auto":
        fits = count * launcher["threads_per_rank"] <= hardware.cpu_cores()
        launcher["wait_policy"] = "default" if fits else "brief"


def _check_batch(config: dict[str, Any]) -> None:
    size, accumulation = config["data"]["batch_size"], config["trainer"]["grad_accumulation"]
    shares = _shares(config)
    parts = shares * accumulation
    if size % parts:
        lower, upper = size // parts * parts, (size // parts + 1) * parts
        nearest = f"{lower} or {upper}" if lower else str(upper)
        instead = " or ".join(map(str, _fitting_ranks(config, size, parts)))
        kind = "ranks" if shares == ranks(config) else "shares of the data"
        instead = instead and f"; or with this batch launcher.nproc_per_node={instead}"
        raise ConfigurationError(
            f"data.batch_size={size} is the global batch, which can't be divided among {shares} {kind} x "
            f"{accumulation} micro-batches. The nearest values that work: data.batch_size={nearest}{instead}."
        )


def _fitting_ranks(config: dict[str, Any], size: int, parts: int) -> list[int]:
    """The nearest lower and higher numbers of ranks that divide the batch; [] if a list of hosts sets the number."""
    if machines(config):
        return []
    count = config["launcher"]["nproc_per_node"]
    fits = [n for n in range(2, 2 * count + 1) if size % (n * parts // count) == 0]
    return [*[n for n in fits if n < count][-1:], *[n for n in fits if n > count][:1]]
