"""The header shown before the training: the run, its devices, and how the global batch is divided."""

from contextlib import suppress

import torch

from manyheads.runner.errors import ConfigurationError
from manyheads.runner.loop.header_rows import (
    about,
    averaging,
    convolves,
    device_name,
    division,
    emulated,
    length,
    ordering,
    samples,
    unfused,
    weights,
)
from manyheads.runner.loop.no_effect import no_effect, of_other_data
from manyheads.runner.loop.prepare import Prepared
from manyheads.runner.loop.train_settings import TrainSettings
from manyheads.runner.machine.hardware import bfloat16
from manyheads.runner.option.run_config import RunConfig
from manyheads.runner.parallel.rank.parallel import Parallel
from manyheads.runner.wording import counted

FAST = {"channels_last": True, "compile": "default"}  # keys of trainer, as in experiment=fast


def header(run: RunConfig, parallel: Parallel, prepared: Prepared, settings: TrainSettings) -> dict[str, str]:
    """The header's rows by name."""
    built, loaders, precision = prepared.built, prepared.loaders, prepared.precision
    classes = prepared.data.classes_in_words
    train, trainer, batch_size = loaders.train, run.trainer, run.data.batch_size
    threads = counted(torch.get_num_threads(), "CPU thread")
    interval = run.scheduler.section.get("interval")  # of torch's classes, which do not say it
    scheduler = run.scheduler.name + (f", stepped once per {interval} (scheduler.interval)" if interval else "")
    trains = not trainer.evaluate_only
    sizes = samples(loaders, trains=trains, fraction=run.data.val_fraction, fold=run.data.fold)
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
                changed.trainer.check_keys()
                words.append(f"trainer.{key}={str(value).lower()}")
    every = " (all of them: experiment=fast)" if len(words) == 1 + len(FAST) else ""
    verb = "is" if len(words) == 1 else "are"
    return {"tip": f"{', '.join(words)} {verb} usually faster{every}"} if words else {}
