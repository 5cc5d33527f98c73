"""What goes together on this machine: ``auto`` is decided here, once, and what cannot work is refused.

Everything is found without torch, before any process starts. Errors name the key to change.
"""

import os
from pathlib import Path
from typing import Any

from manyheads.runner.config.checks import apex as apex_compatibility
from manyheads.runner.config.checks import horovod as horovod_compatibility
from manyheads.runner.data.custom.option import option_class
from manyheads.runner.machine import hardware
from manyheads.runner.machine.hardware import NO_GPU
from manyheads.runner.run.errors import ConfigurationError, Unavailable
from manyheads.runner.run.layout import machines, ranks, refuse_other_machines

ONE_PROCESS_STRATEGIES = ("single", "dp")


def complete(config: dict[str, Any]) -> dict[str, Any]:
    """Decide every ``auto`` in place and check what keys say together. Raises ConfigurationError."""
    refuse_other_machines(config["launcher"])
    _decide_device(config)
    _decide_ranks(config)
    _check_precision(config)
    _check_parallel(config)
    horovod_compatibility.check_launcher(config)
    if config["parallel"]["name"] == "horovod":
        horovod_compatibility.check_parallel(config)
    apex_compatibility.check(config)
    _check_batch(config)  # after what is not there: a sweep skips such a job, whatever its batch
    _check_checkpoint(config)
    _check_data(config)
    return config


def unavailable(group: str, option: str) -> str | None:
    """Why an option can't run on this machine, and how to get it; None when it can."""
    if (group, option) == ("precision", "tf32") and not hardware.gpu_names():
        return f"{NO_GPU}. Use precision=fp32 or precision=bf16"
    return horovod_compatibility.missing_for(group, option) or apex_compatibility.missing_for(group, option)


def gpus_used(config: dict[str, Any]) -> int:
    """How many GPUs of this machine a completed run config makes use of: the first so many."""
    if config["trainer"]["device"] == "cpu":
        return 0
    parallel = config["parallel"]
    if parallel["name"] != "dp":
        return config["launcher"]["nproc_per_node"]
    if parallel["device_ids"] is None:
        return len(hardware.gpu_names())
    return max(*parallel["device_ids"], parallel["output_device"] or 0) + 1


def batch_per_rank(config: dict[str, Any]) -> int:
    """Samples that one rank takes in one micro-batch."""
    return config["data"]["batch_size"] // (ranks(config) * config["trainer"]["grad_accumulation"])


def _decide_device(config: dict[str, Any]) -> None:
    trainer = config["trainer"]
    if trainer["device"] == "auto":
        trainer["device"] = "cuda" if hardware.gpu_names() else "cpu"
    elif trainer["device"] == "cuda" and not hardware.gpu_names():
        raise Unavailable(f"trainer.device=cuda: {NO_GPU}. Set trainer.device=cpu or auto.")


def _decide_ranks(config: dict[str, Any]) -> None:
    launcher, strategy = config["launcher"], config["parallel"]["name"]
    gpus = len(hardware.gpu_names()) if config["trainer"]["device"] == "cuda" else 0
    one = strategy in ONE_PROCESS_STRATEGIES or launcher["name"] == "inline"
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
        cause = f"parallel={strategy}" if strategy in ONE_PROCESS_STRATEGIES else "launcher=inline"
        remedy = "parallel=ddp" if strategy in ONE_PROCESS_STRATEGIES else "launcher=spawn"
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
    parts = ranks(config) * accumulation
    if size % parts:
        lower, upper = size // parts * parts, (size // parts + 1) * parts
        nearest = f"{lower} or {upper}" if lower else str(upper)
        instead = " or ".join(map(str, _fitting_ranks(config, size, parts)))
        instead = instead and f"; or with this batch launcher.nproc_per_node={instead}"
        raise ConfigurationError(
            f"data.batch_size={size} is the global batch and can't be divided among {ranks(config)} ranks x "
            f"{accumulation} micro-batches. The nearest values that can: data.batch_size={nearest}{instead}."
        )


def _fitting_ranks(config: dict[str, Any], size: int, parts: int) -> list[int]:
    """The next lower and higher numbers of ranks that divide the batch; none where a list of hosts says how many."""
    if machines(config):
        return []
    count = config["launcher"]["nproc_per_node"]
    fits = [n for n in range(2, 2 * count + 1) if size % (n * parts // count) == 0]
    return [*[n for n in fits if n < count][-1:], *[n for n in fits if n > count][:1]]


def _check_precision(config: dict[str, Any]) -> None:
    name = config["precision"]["name"]
    if reason := unavailable("precision", name):
        raise Unavailable(f"precision={name}: {reason}.")
    if name == "tf32" and config["trainer"]["device"] == "cpu":
        raise Unavailable("precision=tf32 is a mode of GPUs. Set trainer.device=cuda or precision=fp32.")


def _check_parallel(config: dict[str, Any]) -> None:
    parallel, cpu = config["parallel"], config["trainer"]["device"] == "cpu"
    if parallel.get("backend") == "nccl" and cpu:
        raise Unavailable("parallel.backend=nccl needs GPUs. Set parallel.backend=gloo or auto.")
    if parallel.get("sync_batchnorm") and cpu:
        raise ConfigurationError(
            "parallel.sync_batchnorm=true: SyncBatchNorm works on GPUs only. Set it to false, or choose a "
            "model without BatchNorm (model=small_cnn, convnext_tiny, vit_b_16, ...)."
        )
    if parallel["name"] == "dp":
        _check_replicas(config, gpus=0 if cpu else len(hardware.gpu_names()))


def _check_replicas(config: dict[str, Any], *, gpus: int) -> None:
    parallel, precision, compiled = config["parallel"], config["precision"], config["trainer"]["compile"]
    if compiled != "none":
        raise ConfigurationError(
            f"trainer.compile={compiled}: torch.compile can't compile DataParallel's replicas. Set "
            "trainer.compile=none, or parallel=single or ddp."
        )
    listed = [*(parallel["device_ids"] or []), parallel["output_device"] or 0]
    if [i for i in listed if i >= gpus] if gpus else parallel["device_ids"] or parallel["output_device"]:
        raise ConfigurationError(
            f"parallel.device_ids={parallel['device_ids']}, parallel.output_device={parallel['output_device']}: "
            f"{gpus} GPUs can be used. Name only those, or set both to null."
        )
    is_bfloat16 = precision["name"] == "bf16" or precision.get("dtype") == "bfloat16"
    if is_bfloat16 and gpus and len(parallel["device_ids"] or range(gpus)) > 1:
        # Its threads don't inherit autocast's dtype: torch/nn/parallel/parallel_apply.py.
        raise ConfigurationError(
            f"precision={precision['name']}: torch's DataParallel computes in float16 on its replicas, whatever "
            "autocast is asked for. Set precision=amp precision.dtype=float16, or parallel=ddp."
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
            f"checkpoint.resume={checkpoint['resume']} goes on with a run, {other} does not. Set one of them."
        )
    for key in ("load", "resume"):
        if checkpoint[key] is not None:
            path = Path(checkpoint[key]).expanduser().absolute()
            if not path.is_file():
                raise ConfigurationError(
                    f"checkpoint.{key}={checkpoint[key]}: there is no such file. Set it to a .pt file."
                )
            checkpoint[key] = str(path)


def _check_data(config: dict[str, Any]) -> None:
    """Our own data options say what they miss; their modules import no torch until they build."""
    data = config["data"]
    if data.get("root"):
        data["root"] = os.path.abspath(os.path.expanduser(data["root"]))
    option_class(data["_target_"]).check(data)
