"""Refuses settings that do not work together, except for those that the options themselves refuse."""

import math
from pathlib import Path

from manyheads.runner.errors import ConfigurationError, Unavailable
from manyheads.runner.machine.software import too_old
from manyheads.runner.option.run_config import RunConfig
from manyheads.runner.option.sections import TrainerSection
from manyheads.runner.run import objects
from manyheads.runner.run.checkpoint_places import is_checkpoint
from manyheads.runner.run.objects.address import Address

CUDA_GRAPHS = ("reduce-overhead", "max-autotune")  # modes of torch.compile that record them


def check_trainer(run: RunConfig) -> None:
    """Raises ConfigurationError for training features that do not work with each other or with the strategy."""
    trainer = run.trainer
    if trainer.epochs is None and trainer.max_steps is None:
        raise ConfigurationError.at(
            "trainer.epochs", None, " and trainer.max_steps=null: nothing says how long to train. Set one of them."
        )
    _check_graphs(trainer)
    if math.isfinite(trainer.clip_norm) and math.isfinite(trainer.clip_value):
        raise ConfigurationError.at(
            "trainer.clip_norm",
            trainer.clip_norm,
            f" and trainer.clip_value={trainer.clip_value:g} are two ways to clip gradients. Set one of them to inf.",
        )
    if trainer.patience is not None and trainer.evaluate_every == 0:
        raise ConfigurationError.at(
            "trainer.patience",
            trainer.patience,
            f": checkpoint.monitor={run.checkpoint.monitor} is never measured with "
            "trainer.evaluate_every=0. Set trainer.evaluate_every=1.",
        )
    if trainer.recompute and run.parallel.mixes_communication:
        raise ConfigurationError(
            f"trainer.recompute: with parallel={run.parallel.name} ranks communicate within modules. Set it to []; "
            "parallel=fsdp and parallel=mesh have parallel.recompute=true instead.",
            key="trainer.recompute",
        )
    if trainer.recompute and trainer.compile != "none":
        raise ConfigurationError(
            "trainer.recompute: torch.compile does not see its hooks. Set it to [], or trainer.compile=none.",
            key="trainer.recompute",
        )
    if trainer.resize_from is not None and trainer.resize_start >= trainer.resize_end:
        raise ConfigurationError.at(
            "trainer.resize_start",
            trainer.resize_start,
            f" is not before trainer.resize_end={trainer.resize_end}. Lower it.",
        )
    if trainer.sam_rho is not None:
        _check_sam(run)
    if trainer.on_spike is not None:
        _check_spikes(run)
    if trainer.verify_every:
        _check_verification(run)
    _check_average(run)


def _check_graphs(trainer: TrainerSection) -> None:
    """Raises ConfigurationError if trainer.compile does not work with its units or with accumulation."""
    mode, accumulation = trainer.compile, trainer.grad_accumulation
    if trainer.compile_units and (reason := too_old("2.8")):  # earlier ones compile each block, at most 8
        raise ConfigurationError(
            f"trainer.compile_units: {reason}. Or set it to [], and compile the whole model.",
            key="trainer.compile_units",
        )
    if trainer.compile_units and mode in ("none", *CUDA_GRAPHS):
        reason = "nothing is compiled" if mode == "none" else "CUDA graphs capture a whole model"
        raise ConfigurationError(
            f"trainer.compile_units: with trainer.compile={mode} {reason}. Set trainer.compile to default "
            "or max-autotune-no-cudagraphs, or trainer.compile_units to [].",
            key="trainer.compile_units",
        )
    if trainer.device == "cuda" and mode in CUDA_GRAPHS and accumulation > 1:
        raise ConfigurationError.at(
            "trainer.compile",
            mode,
            f": its CUDA graphs overwrite the gradients of the previous micro-batch, and "
            f"trainer.grad_accumulation is {accumulation}. Set it to 1, or trainer.compile=default or "
            "max-autotune-no-cudagraphs.",
        )


def _check_average(run: RunConfig) -> None:
    decay, start = run.trainer.ema_decay, run.trainer.swa_start
    if (decay, start) == (None, None):
        return
    if start is not None and decay is not None:
        raise ConfigurationError(
            "trainer.ema_decay and trainer.swa_start cannot be combined. Set one of them to null.",
            key="trainer.ema_decay",
        )
    if not run.parallel.is_exact:
        key, value = ("ema_decay", decay) if decay is not None else ("swa_start", start)
        raise ConfigurationError.at(
            f"trainer.{key}",
            value,
            f": ranks of parallel={run.parallel.name} have weights of their own, so the average of one rank says "
            "nothing about the others. Set parallel=ddp.",
        )
    if start is not None and run.trainer.epochs is not None and start > run.trainer.epochs:
        raise ConfigurationError.at(
            "trainer.swa_start", start, f" is after the last of {run.trainer.epochs} epochs. Lower it."
        )


def _check_spikes(run: RunConfig) -> None:
    action, parallel = run.trainer.on_spike, run.parallel
    if parallel.outlives_ranks:
        raise ConfigurationError.at(
            "trainer.on_spike",
            action,
            f": replicas of parallel={parallel.name} that come and go cannot agree on what is unusual. Set it to null, "
            "or parallel=ddp.",
        )
    if run.trainer.on_nan == "skip":
        raise ConfigurationError(
            f"trainer.on_nan=skip and trainer.on_spike={action}: the latter treats NaN and infinity as spikes. Set "
            "trainer.on_nan=error.",
            key="trainer.on_nan",
            value="skip",
        )
    if action != "rollback":
        return
    if not parallel.is_exact:
        raise ConfigurationError.at(
            "trainer.on_spike",
            action,
            f": ranks of parallel={parallel.name} have weights of their own, to which they cannot return. Set it to "
            "skip, or parallel=ddp.",
        )
    if run.checkpoint.every == 0:
        raise ConfigurationError.at(
            "trainer.on_spike",
            action,
            " returns to a checkpoint, and checkpoint.every=0 writes none. Set checkpoint.every=1epoch.",
        )


def _check_verification(run: RunConfig) -> None:
    every, parallel = run.trainer.verify_every, run.parallel
    if parallel.outlives_ranks:
        reason, instead = "exchanges each update once, with the replicas that take part then", "parallel=ddp"
    elif not parallel.is_exact:
        reason, instead = "averages weights between two updates, where nothing else may change them", "parallel=ddp"
    elif parallel.compression == "powersgd":
        reason, instead = "carries errors from one exchange to the next", "parallel.compression=none"
    elif run.precision.unscales_in_backward:
        what = f"precision={run.precision.name}"
        reason, instead = f"computes with {what}, which changes the scale in each computation", "precision=amp"
    else:
        return
    raise ConfigurationError.at(
        "trainer.verify_every",
        every,
        f" computes gradients twice, but parallel={parallel.name} {reason}. Set it to 0, or {instead}.",
    )


def _check_sam(run: RunConfig) -> None:
    option, on_gpus = run.precision, run.on_gpus
    if option.scales_gradients(on_gpus=on_gpus) or option.half_weights(on_gpus=on_gpus) or option.reloads_optimizer():
        raise ConfigurationError.at(
            "trainer.sam_rho",
            run.trainer.sam_rho,
            f": its second pass needs unscaled gradients and the model's own "
            f"weights, which precision={option.name} does not have here. Set precision=bf16 or fp32.",
        )


def check_batch(run: RunConfig) -> None:
    """Raises ConfigurationError if the global batch can't be divided among the ranks and their micro-batches."""
    size, accumulation, shares = run.data.batch_size, run.trainer.grad_accumulation, run.data_shares
    parts = shares * accumulation
    if size % parts:
        lower, upper = size // parts * parts, (size // parts + 1) * parts
        nearest = f"{lower} or {upper}" if lower else str(upper)
        is_fixed = bool(run.launcher.machines)  # by a list of hosts
        instead = "" if is_fixed else " or ".join(map(str, _fitting(run.launcher.nproc_per_node, size, parts)))
        kind = "ranks" if shares == run.launcher.ranks else "data-parallel ranks"
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


def check_fresh_start(run: RunConfig, *, what: str) -> None:
    """Raises ConfigurationError for a run that only evaluates, or resumes another.

    ``what``: names in the error what needs training from the start, such as "a judgement".
    """
    unsuited = {"trainer.evaluate_only": run.trainer.evaluate_only, "checkpoint.resume": run.checkpoint.resume}
    for key, value in unsuited.items():
        if value:
            raise ConfigurationError.at(
                key,
                value,
                f": {what} trains from the start. Leave it out, or set checkpoint.load to start from the weights of a "
                "checkpoint.",
            )


def with_checkpoint(run: RunConfig) -> RunConfig:
    """The config with absolute paths of checkpoints. Raises ConfigurationError if one is missing, or they conflict."""
    checkpoint, evaluate_only = run.checkpoint, run.trainer.evaluate_only
    if checkpoint.mirror is not None:
        _check_mirror(checkpoint.mirror)
    if evaluate_only and checkpoint.load is None:
        raise ConfigurationError.at(
            "trainer.evaluate_only", True, " evaluates a checkpoint. Set checkpoint.load=<run>/checkpoints/best.pt."
        )
    if checkpoint.resume is not None and (evaluate_only or checkpoint.load is not None):
        other = "trainer.evaluate_only=true" if evaluate_only else f"checkpoint.load={checkpoint.load}"
        raise ConfigurationError.at(
            "checkpoint.resume", checkpoint.resume, f" resumes a run, {other} does not. Set only one of them."
        )
    absolute = {}
    for key, typed in (("load", checkpoint.load), ("resume", checkpoint.resume)):
        if typed is not None:
            path = Path(typed).expanduser().absolute()
            if not is_checkpoint(path):
                raise ConfigurationError.at(
                    f"checkpoint.{key}",
                    typed,
                    ": there is no such file. Set it to a .pt file, or to the folder of a sharded checkpoint.",
                )
            absolute[key] = str(path)
    return run.changed(checkpoint=absolute) if absolute else run


def _check_mirror(mirror: str) -> None:
    """Raises ConfigurationError if it is not an address, and Unavailable if object storage is not supported here."""
    Address.of(mirror, key="checkpoint.mirror")
    if reason := objects.unavailable():
        raise Unavailable.at("checkpoint.mirror", mirror, f": {reason}.")
