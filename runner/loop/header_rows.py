"""Rows of the header that a run prints, each in words."""

from collections.abc import Sequence
from typing import Any, cast

import torch
from torch import nn

from manyheads.runner.data.order import quality
from manyheads.runner.data.partition import ALL
from manyheads.runner.data.rank.build_data import Loaders
from manyheads.runner.data.rank.loader import Loader
from manyheads.runner.data.rank.sampler import EvaluationSampler, TrainingSampler
from manyheads.runner.errors import printable_text
from manyheads.runner.loop.train_settings import TrainSettings
from manyheads.runner.machine.hardware import EMULATED, bfloat16
from manyheads.runner.model.rank.build_model import Built
from manyheads.runner.optimizer.rank.gradient_kinds import WORDS, unusual_gradients
from manyheads.runner.parallel.rank.parallel import Parallel
from manyheads.runner.wording import counted


def samples(loaders: Loaders, *, trains: bool, fraction: float | None, fold: int | None) -> str:
    """The samples of a run, or those of an evaluation and of how many ``fraction`` or ``fold`` selected them."""
    train, val = loaders.train.samples, loaders.val.samples
    used, rest = min(cast(EvaluationSampler, loaders.val.sampler).size, val), ""
    if used < val:  # trainer.limit_val
        rest = f" (a random sample, drawn by data.split_seed) of {val:,}"
    if trains:
        return f"{train:,} training and {used:,}{rest} validation samples"
    if fraction == ALL:
        return f"all {used:,} samples" if used == val else f"{used:,}{rest} samples"
    if fraction is not None or fold is not None:
        rest += f" (data.fold={fold})" if fraction is None else f" (data.val_fraction={fraction})"
        return f"{used:,}{rest} of {train + val:,} samples"
    return f"{used:,}{rest} validation samples"


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
