"""The header shown before the training: the run, its devices, and how the global batch is divided."""

from collections.abc import Sequence
from contextlib import suppress
from typing import Any, cast

import torch
from torch import nn

from manyheads.runner.config.checks import check_trainer
from manyheads.runner.data.order import quality
from manyheads.runner.data.rank.loader import Loader
from manyheads.runner.data.rank.sampler import EvaluationSampler, TrainingSampler
from manyheads.runner.errors import ConfigurationError, printable_text
from manyheads.runner.loop.no_effect import no_effect, of_other_data
from manyheads.runner.loop.prepare import Prepared
from manyheads.runner.loop.train_settings import TrainSettings
from manyheads.runner.machine.hardware import EMULATED, bfloat16
from manyheads.runner.model.rank.build_model import Built
from manyheads.runner.optimizer.rank.gradient_kinds import WORDS, unusual_gradients
from manyheads.runner.option.run_config import RunConfig
from manyheads.runner.parallel.rank.parallel import Parallel
from manyheads.runner.wording import counted

FAST = {"channels_last": True, "compile": "default"}  # keys of trainer, as in experiment=fast


def header(run: RunConfig, parallel: Parallel, prepared: Prepared, settings: TrainSettings) -> dict[str, str]:
    """The header's rows by name."""
    built, loaders, precision = prepared.built, prepared.loaders, prepared.precision
    classes = prepared.data.classes_in_words
    train, trainer, batch_size = loaders.train, run.trainer, run.data.batch_size
    threads = counted(run.launcher.threads_per_rank, "CPU thread")
    sizes = f"{train.samples:,} training and {evaluated(loaders.val)} validation samples"
    interval = run.scheduler.section.get("interval")  # of torch's classes, which do not say it
    scheduler = run.scheduler.name + (f", stepped once per {interval} (scheduler.interval)" if interval else "")
    trains = not trainer.evaluate_only
    limits = {"max_steps": trainer.max_steps, "stop_after": trainer.stop_after}
    idle = {}
    if trains:
        other = of_other_data(run.data.section, loaders)
        idle = no_effect(trainer, run.checkpoint, run.scheduler, idle_data=other, settings=settings, loaders=loaders)
    return {
        **about(run.name, run.tags, run.notes),
        "model": f"{run.model.title}, {counted(prepared.parameters, 'parameter')}",
        "data": f"{run.data.name}, {sizes}" + (f", {classes}" if classes else ""),
        **prepared.data.facts,
        "parallel": f"{run.parallel.name}, {parallel.summary}, started by {run.launcher.starter}",
        "device": f"{device_name(parallel.device)}, {threads} per rank",
        "precision": f"{run.precision.name}, {precision.summary}",
        "batch": division(batch_size, trainer.grad_accumulation, parallel),
        "optimizer": f"{run.optimizer.name}, {run.optimizer.lr_in_words(batch_size)}; scheduler {scheduler}",
        **unfused(built.model, run.optimizer.section.get("fused")),
        **({"length": length(settings, train.updates, **limits)} if trains else {}),
        **(averaging(trainer.ema_decay, trainer.swa_start) if trains else {}),
        **idle,
        **unused_speedups(run, convolves=convolves(built.model)),
        **emulated(run.precision.autocast(on_gpus=run.on_gpus), trainer.device),
        **(ordering(train, batch_size) if trains else {}),
        **weights(built, run.checkpoint.load),
    }


def evaluated(val: Loader) -> str:
    """The number of samples of an evaluation; with trainer.limit_val also of how many they are drawn."""
    used = min(cast(EvaluationSampler, val.sampler).size, val.samples)
    return (
        f"{used:,}"
        if used == val.samples
        else f"{used:,} (a random sample, drawn by data.split_seed) of {val.samples:,}"
    )


def division(batch_size: int, accumulation: int, parallel: Parallel) -> str:
    """How the global batch is divided among all ranks."""
    shares = parallel.data_size * parallel.total_ranks // parallel.world_size
    of = counted(shares, "rank" if shares == parallel.total_ranks else "share")
    micro_batches = counted(accumulation, "micro-batch", "micro-batches")
    return f"{batch_size} = {of} x {batch_size // (shares * accumulation)} samples x {micro_batches}"


def length(settings: TrainSettings, updates: int, *, max_steps: int | None, stop_after: int | None) -> str:
    """How long the run will be, and which key of trainer says so. ``updates``: of an epoch."""
    total, limits = settings.total_steps, {"max_steps": max_steps, "stop_after": stop_after}
    late = {key: limit for key, limit in limits.items() if limit is not None and limit > total}
    unreached = "".join(f"; trainer.{key}={limit} is not reached" for key, limit in late.items())
    if stop_after is not None and stop_after < total:
        return f"{counted(stop_after, 'update')} of {total:,} (trainer.stop_after)"
    if settings.limit == "max_steps":
        return f"{counted(total, 'update')} (trainer.max_steps{unreached}); an epoch has {updates:,}"
    return f"{counted(total, 'update')} = {counted(settings.epochs, 'epoch')} x {updates:,} (trainer.epochs{unreached})"


def ordering(train: Loader, batch_size: int) -> dict[str, str]:
    """The order of the training samples, and how close its batches are to a full shuffle's; empty for the usual one."""
    assert isinstance(train.sampler, TrainingSampler)
    order = train.sampler.order
    if not order.mixes_locally:
        return {"order": order.summary} if order.summary else {}
    targets = getattr(train.batches.dataset, "targets", None)
    if targets is not None and (len(targets) != order.size or getattr(targets, "ndim", 1) != 1):
        targets = None  # of other samples, or masks
    return {"order": f"{order.summary}: {quality(order, targets, batch_size=batch_size)}"}


def averaging(ema_decay: float | None, swa_start: int | None) -> dict[str, str]:
    """The average of the weights that is kept, and its use; empty without one."""
    if ema_decay is not None:
        return {"averaging": f"EMA of {ema_decay:g}; val_ columns and best.pt use it"}
    return {} if swa_start is None else {"averaging": f"SWA from epoch {swa_start}; the final weights are the average"}


def unused_speedups(run: RunConfig, *, convolves: bool) -> dict[str, str]:
    """Unused settings that are usually faster on this device, as overrides; without those that the run would refuse.

    ``convolves``: whether the model is mostly convolutions; on CPUs no other models were seen to gain (docs/gpus.md).
    """
    trainer, precision = run.trainer, run.precision
    if not run.on_gpus:
        is_plain = precision.weights_dtype == "float32" and precision.autocast(on_gpus=False) is None
        has = bfloat16() if convolves and is_plain else None
        return {"tip": f"precision=bf16 is usually faster: this processor has {has}"} if has else {}
    is_half = precision.autocast(on_gpus=True) or precision.scales_gradients(on_gpus=True)
    words = [] if is_half else ["precision=bf16"]
    unused = {"channels_last": convolves and not trainer.channels_last, "compile": trainer.compile == "none"}
    for key, value in FAST.items():
        if unused[key]:
            changed = run.changed(trainer={key: value})
            with suppress(ConfigurationError):  # the run would be refused
                changed.parallel.check_run(changed)
                check_trainer(changed)
                words.append(f"trainer.{key}={str(value).lower()}")
    every = " (all of them: experiment=fast)" if len(words) == 1 + len(FAST) else ""
    verb = "is" if len(words) == 1 else "are"
    return {"tip": f"{', '.join(words)} {verb} usually faster{every}"} if words else {}


def convolves(model: nn.Module) -> bool:
    """Whether more than half of the model's parameters belong to convolutions over images."""
    sizes = [(isinstance(module, nn.Conv2d), p.numel()) for module in model.modules() for p in module.parameters(False)]
    return 2 * sum(size for is_of_one, size in sizes if is_of_one) > sum(size for _, size in sizes)


def unfused(model: nn.Module, fused: Any) -> dict[str, str]:
    """Why ``optimizer.fused`` has no effect; empty if it has, or is not set."""
    named = [f"{name}, {WORDS[kind]}" for kind, name in unusual_gradients(model).items()]
    return {"not fused": f"no fused kernel updates {named[0]}"} if named and fused else {}


def emulated(autocast: str | None, device: str) -> dict[str, str]:
    """A warning for CPUs that emulate bfloat16 and so are slower than with fp32; else empty."""
    on_cpus = device == "cpu" and autocast == "bfloat16"
    return {"warning": f"usually slower than precision=fp32: {EMULATED}"} if on_cpus and bfloat16() is None else {}


def weights(built: Built, loaded: str | None) -> dict[str, str]:
    """The source of the initial weights, and those of it that do not fit; empty for random weights."""
    sources = [built.pretrained, loaded]
    text = "; then ".join(name for name in sources if name is not None)
    if built.prefix:
        text += f", without the prefix {built.prefix} of its names"
    if built.unfit is not None and any(built.unfit):
        text += f", not all of which fit: {built.unfit}"
    return {"weights": text} if text else {}


def about(name: str | None, tags: Sequence[str], notes: str | None) -> dict[str, str]:
    """The user's description of the run; empty without one."""
    texts = {"name": name, "tags": ", ".join(tags), "notes": notes}
    return {key: printable_text(text) for key, text in texts.items() if text}


def device_name(device: torch.device) -> str:
    """A GPU's own name; else the type of device, such as "cpu"."""
    return torch.cuda.get_device_name(device) if device.type == "cuda" else device.type
