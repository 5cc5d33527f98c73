"""What goes together on this machine: ``auto`` is decided here, once, and what cannot work is refused.

Everything is found without torch, before any process starts. Errors name the key to change. What one option needs or
refuses, it says itself (``option/base.py``).
"""

import math
from pathlib import Path
from typing import Any

from manyheads.runner.checkpoint.sharded.index import is_checkpoint
from manyheads.runner.config.lookup import OWN, Folders, read_option
from manyheads.runner.machine import hardware
from manyheads.runner.machine.hardware import NO_GPU
from manyheads.runner.option.declared import ENTRIES, GROUPS, declared
from manyheads.runner.run.errors import ConfigurationError, Unavailable
from manyheads.runner.run.layout import machines, ranks, refuse_other_machines

CUDA_GRAPHS = ("reduce-overhead", "max-autotune")  # modes of torch.compile that record them
# The launcher decides by what its ranks agree, which strategies ask for.
ORDER = sorted(GROUPS, key=lambda group: group != "launcher")


def complete(config: dict[str, Any]) -> dict[str, Any]:
    """Decide every ``auto`` in place and check what keys say together. Raises ConfigurationError."""
    refuse_other_machines(config["launcher"])
    with declared("launcher", config["launcher"]).on_its_machines(config):
        return _completed(config)


def _completed(config: dict[str, Any]) -> dict[str, Any]:
    _decide_device(config)
    _decide_ranks(config)
    for group in reversed(ORDER):  # a strategy is what was asked for, and brings its launcher
        if reason := declared(group, config[group]).unavailable():
            raise Unavailable(f"{group}={config[group]['name']}: {reason}.")
    for name, entry in config["logger"].items():
        if reason := declared("logger", entry).unavailable():
            raise Unavailable(f"logger.{name}: {reason}.")
    for group in ORDER:
        if group != "data":  # which may take long to look through
            declared(group, config[group]).complete(config)
    _check_batch(config)  # after what is missing: a sweep skips such a job, whatever its batch
    _check_checkpoint(config)
    _check_graphs(config["trainer"])
    _check_trainer(config)
    declared("data", config["data"]).complete(config)
    return config


def unavailable(group: str, option: str, folders: Folders = OWN) -> str | None:
    """Why an option can't run on this machine, and how to get it; None when it can."""
    section = read_option(group, option, folders)
    sections = section.values() if group in ENTRIES else [section]
    return next((reason for each in sections if (reason := declared(group, each).unavailable())), None)


def gpus_used(config: dict[str, Any]) -> int:
    """How many GPUs of this machine a completed run config uses: the first ones."""
    if config["trainer"]["device"] == "cpu":
        return 0
    count = declared("parallel", config["parallel"]).gpus_used(config)
    return declared("launcher", config["launcher"]).gpus_here(count)


def batch_per_rank(config: dict[str, Any]) -> int:
    """Samples that one rank takes in one micro-batch."""
    return config["data"]["batch_size"] // (_shares(config) * config["trainer"]["grad_accumulation"])


def fits(config: dict[str, Any], count: int) -> bool:
    """Whether this number of ranks can divide the batch of a completed run config."""
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
            f"{accumulation} micro-batches. The nearest values that can: data.batch_size={nearest}{instead}."
        )


def _fitting_ranks(config: dict[str, Any], size: int, parts: int) -> list[int]:
    """The next lower and higher numbers of ranks that divide the batch; none where a list of hosts says how many."""
    if machines(config):
        return []
    count = config["launcher"]["nproc_per_node"]
    fits = [n for n in range(2, 2 * count + 1) if size % (n * parts // count) == 0]
    return [*[n for n in fits if n < count][-1:], *[n for n in fits if n > count][:1]]


def _check_graphs(trainer: dict[str, Any]) -> None:
    mode, accumulation = trainer["compile"], trainer["grad_accumulation"]
    if trainer["compile_units"] and mode in ("none", *CUDA_GRAPHS):
        reason = "nothing is compiled" if mode == "none" else "CUDA graphs capture a whole model"
        raise ConfigurationError(
            f"trainer.compile_units: with trainer.compile={mode} {reason}. Set that to default or "
            "max-autotune-no-cudagraphs, or compile_units to []."
        )
    if trainer["device"] == "cuda" and mode in CUDA_GRAPHS and accumulation > 1:
        raise ConfigurationError(
            f"trainer.compile={mode}: its CUDA graphs overwrite the gradients of the previous micro-batch, and "
            f"trainer.grad_accumulation is {accumulation}. Set it to 1, or trainer.compile=default or "
            "max-autotune-no-cudagraphs."
        )


def _check_trainer(config: dict[str, Any]) -> None:
    trainer, monitor = config["trainer"], config["checkpoint"]["monitor"]
    if math.isfinite(trainer["clip_norm"]) and math.isfinite(trainer["clip_value"]):
        raise ConfigurationError(
            f"trainer.clip_norm={trainer['clip_norm']:g} and trainer.clip_value={trainer['clip_value']:g} are two ways "
            "to clip gradients. Set one of them to inf."
        )
    if trainer["patience"] is not None and trainer["evaluate_every"] == 0:
        raise ConfigurationError(
            f"trainer.patience={trainer['patience']}: checkpoint.monitor={monitor} is never measured with "
            "trainer.evaluate_every=0. Set that to 1."
        )
    if trainer["recompute"] and declared("parallel", config["parallel"]).mixes_communication:
        raise ConfigurationError(
            f"trainer.recompute: with parallel={config['parallel']['name']} ranks communicate within modules. Set it "
            "to [], and with parallel=fsdp or mesh parallel.recompute=true instead."
        )
    if trainer["recompute"] and trainer["compile"] != "none":
        raise ConfigurationError(
            "trainer.recompute: torch.compile does not see its hooks. Set it to [], or trainer.compile=none."
        )
    _check_epochs(config)
    if trainer["sam_rho"] is not None:
        _check_sam(config)
    if (trainer["ema_decay"], trainer["swa_start"]) == (None, None):
        return
    key = "ema_decay" if trainer["ema_decay"] is not None else "swa_start"
    if trainer["swa_start"] is not None and trainer["ema_decay"] is not None:
        raise ConfigurationError("trainer.ema_decay and trainer.swa_start are two averages. Set one of them to null.")
    if not declared("parallel", config["parallel"]).is_exact:
        raise ConfigurationError(
            f"trainer.{key}={trainer[key]}: ranks of parallel={config['parallel']['name']} have weights of their "
            "own, so the average of one rank says nothing about the others. Set parallel=ddp."
        )
    if trainer["swa_start"] is not None and trainer["swa_start"] > trainer["epochs"]:
        raise ConfigurationError(
            f"trainer.swa_start={trainer['swa_start']} is after the last of {trainer['epochs']} epochs. Lower it."
        )


def _check_epochs(config: dict[str, Any]) -> None:
    """What differs from epoch to epoch."""
    trainer = config["trainer"]
    if trainer["resize_from"] is not None and trainer["resize_start"] >= trainer["resize_end"]:
        raise ConfigurationError(
            f"trainer.resize_start={trainer['resize_start']} is not before "
            f"trainer.resize_end={trainer['resize_end']}. Lower it."
        )
    if config["parameters"]["freeze_epochs"] and config["parallel"].get("op") == "adasum":
        raise ConfigurationError(
            "parameters.freeze_epochs: parallel.op=adasum combines updates, not gradients, and would change frozen "
            "parameters. Set op=average."
        )


def _check_sam(config: dict[str, Any]) -> None:
    precision, on_gpus = config["precision"], config["trainer"]["device"] != "cpu"
    option, rho = declared("precision", precision), config["trainer"]["sam_rho"]
    if option.scales_gradients(on_gpus=on_gpus) or option.half_weights(on_gpus=on_gpus) or option.reloads_optimizer():
        raise ConfigurationError(
            f"trainer.sam_rho={rho}: its second pass needs unscaled gradients and the model's own weights, which "
            f"precision={precision['name']} does not have here. Set precision=bf16 or fp32."
        )
    if config["parallel"].get("op") == "adasum":
        raise ConfigurationError(
            f"trainer.sam_rho={rho}: parallel.op=adasum does not have the gradients of all ranks. Set op=average."
        )


def _check_checkpoint(config: dict[str, Any]) -> None:
    checkpoint, evaluate_only = config["checkpoint"], config["trainer"]["evaluate_only"]
    if evaluate_only and checkpoint["load"] is None:
        raise ConfigurationError(
            "trainer.evaluate_only=true evaluates a checkpoint. Set checkpoint.load=<run>/checkpoints/best.pt."
        )
    if checkpoint["resume"] is not None and (evaluate_only or checkpoint["load"] is not None):
        other = "trainer.evaluate_only=true" if evaluate_only else f"checkpoint.load={checkpoint['load']}"
        raise ConfigurationError(
            f"checkpoint.resume={checkpoint['resume']} resumes a run, {other} does not. Set only one of them."
        )
    for key in ("load", "resume"):
        if checkpoint[key] is not None:
            path = Path(checkpoint[key]).expanduser().absolute()
            if not is_checkpoint(path):
                raise ConfigurationError(
                    f"checkpoint.{key}={checkpoint[key]}: there is no such file. Set it to a .pt file, or to the "
                    "folder of a sharded checkpoint."
                )
            checkpoint[key] = str(path)
