"""Checks the sections that are not options, for settings that do not work together."""

import math
from pathlib import Path
from typing import Any

from manyheads.runner.checkpoint.sharded.index import is_checkpoint
from manyheads.runner.machine.torch_version import too_old
from manyheads.runner.option.declared import declared
from manyheads.runner.run.errors import ConfigurationError

CUDA_GRAPHS = ("reduce-overhead", "max-autotune")  # modes of torch.compile that record them


def check_graphs(trainer: dict[str, Any]) -> None:
    """Raises ConfigurationError if trainer.compile does not work with its units or with accumulation."""
    mode, accumulation = trainer["compile"], trainer["grad_accumulation"]
    if trainer["compile_units"] and (reason := too_old("2.8")):  # which compiled each block for itself, at most 8
        raise ConfigurationError(f"trainer.compile_units: {reason}. Or set it to [], and compile the whole model.")
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


def check_trainer(config: dict[str, Any]) -> None:
    """Raises ConfigurationError for training features that do not work with each other or with the strategy."""
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
    _check_average(config)


def _check_average(config: dict[str, Any]) -> None:
    trainer = config["trainer"]
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
    """Raises ConfigurationError for settings by epoch that do not work."""
    trainer = config["trainer"]
    if trainer["resize_from"] is not None and trainer["resize_start"] >= trainer["resize_end"]:
        raise ConfigurationError(
            f"trainer.resize_start={trainer['resize_start']} is not before "
            f"trainer.resize_end={trainer['resize_end']}. Lower it."
        )


def _check_sam(config: dict[str, Any]) -> None:
    precision, on_gpus = config["precision"], config["trainer"]["device"] != "cpu"
    option, rho = declared("precision", precision), config["trainer"]["sam_rho"]
    if option.scales_gradients(on_gpus=on_gpus) or option.half_weights(on_gpus=on_gpus) or option.reloads_optimizer():
        raise ConfigurationError(
            f"trainer.sam_rho={rho}: its second pass needs unscaled gradients and the model's own weights, which "
            f"precision={precision['name']} does not have here. Set precision=bf16 or fp32."
        )


def check_checkpoint(config: dict[str, Any]) -> None:
    """Make the paths of checkpoints absolute. Raises ConfigurationError if one is missing, or several conflict."""
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
