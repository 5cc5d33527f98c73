"""Finds keys that were set without effect: of features that are off, and intervals that the run does not reach."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from manyheads.runner.checkpoint.retention import interval
from manyheads.runner.config.lookup import CONF, option_of, read
from manyheads.runner.data.rank.build_data import Loaders
from manyheads.runner.data.rank.in_memory import TokenDataset
from manyheads.runner.errors import as_typed
from manyheads.runner.loop.train_settings import TrainSettings
from manyheads.runner.option.sections import CheckpointSection
from manyheads.runner.option.trainer_section import TrainerSection
from manyheads.runner.scheduler.scheduler_option import SchedulerOption

OF_IMAGES, OF_TEXT = ("image_size", "train_image_size", "val_resize"), ("block_size", "tokenizer")
OF_EPOCH, OF_RUN = ("log_every", "limit_train", "overfit"), ("ema_every", "sam_every", "verify_every")
# Keys that act only if one of others is set: the others, then these, each after its section.
NEEDS = (
    (("trainer.ema_decay",), "trainer", ("ema_every", "ema_warmup")),
    (("trainer.sam_rho",), "trainer", ("sam_every",)),
    (("trainer.patience",), "trainer", ("min_delta",)),
    (("trainer.resize_from",), "trainer", ("resize_start", "resize_end", "resize_step")),
    (("trainer.on_spike",), "trainer", ("spike_window", "spike_threshold", "spike_span")),
    (("trainer.verify_every",), "trainer", ("on_corruption",)),
    (("trainer.test",), "trainer", ("limit_test",)),
    (("trainer.evaluate_every", "trainer.test"), "trainer", ("limit_val", "tta")),
    (("trainer.mixup_alpha", "trainer.cutmix_alpha"), "trainer", ("mix_prob",)),
    (("trainer.mixup_alpha",), "trainer", ("mix_switch_prob",)),
    (("trainer.cutmix_alpha",), "trainer", ("mix_switch_prob",)),
    (("checkpoint.every",), "checkpoint", ("keep", "keep_every", "keep_hours", "format", "asynchronous")),
    (("checkpoint.load",), "checkpoint", ("strict",)),
    (("checkpoint.mirror",), "checkpoint", ("mirror_wait",)),
)


def no_effect(
    trainer: TrainerSection,
    checkpoint: CheckpointSection,
    scheduler: SchedulerOption,
    *,
    idle_data: Sequence[str] = (),
    settings: TrainSettings,
    loaders: Loaders,
) -> dict[str, str]:
    """The header's rows about keys that were set and have no effect, or are not reached; empty without any.

    ``idle_data``: those of the data, as ``of_other_data`` returns them.
    """
    sections = {"trainer": trainer, "checkpoint": checkpoint}
    written = read(CONF / "config.yaml")
    usual = {f"{section}.{name}": value for section in sections for name, value in written[section].items()}
    values = {key: getattr(sections[key.partition(".")[0]], key.partition(".")[2]) for key in usual}
    given = {key: value for key, value in values.items() if value != usual[key]}
    idle = [
        f"{as_typed(f'{section}.{name}', given[f'{section}.{name}'])}, without {' or '.join(others)}"
        for others, section, names in NEEDS
        for name in names
        if f"{section}.{name}" in given and all(values[other] in (None, 0, "0") for other in others)
    ]
    is_own = not scheduler.target.startswith("manyheads.")  # whose keys may mean something else
    given |= {f"scheduler.{k}": v for k, v in scheduler.section.items() if k.startswith("warmup_") or not is_own}
    late = [f"{as_typed(key, given[key])} ({limit})" for key, limit in _unreached(given, settings, loaders)]
    rows = {"no effect": "; ".join([*idle, *idle_data]), "unreached": "; ".join(late)}
    return {name: text for name, text in rows.items() if text}


def _unreached(given: Mapping[str, Any], settings: TrainSettings, loaders: Loaders) -> list[tuple[str, str]]:
    """The keys that were set to more than this run has, and what it has."""
    updates, total = loaders.train.updates, settings.total_steps
    every_epochs, every_updates = interval(given.get("checkpoint.every", 0))
    evaluates = "trainer.evaluate_every" in given
    in_epochs, evaluations = total / updates, _evaluations(settings, updates)
    epoch, batches = f"an epoch has {updates:,} updates", f"an evaluation has {loaders.val.updates:,} batches"
    end, last = f"training ends after {total:,} updates", f"training ends in epoch {settings.epochs:,}"
    evaluated = f"the last evaluation is number {evaluations:,}"
    rows: list[tuple[str, Any, float, str]] = [
        *((f"trainer.{key}", given.get(f"trainer.{key}"), updates, epoch) for key in OF_EPOCH),
        ("trainer.limit_val", given.get("trainer.limit_val"), loaders.val.updates, batches),
        ("trainer.evaluate_every", evaluates and settings.evaluate_every, settings.epochs, last),
        ("trainer.evaluate_every", evaluates and settings.evaluate_steps, total, end),
        ("trainer.patience", given.get("trainer.patience"), evaluations - 1, evaluated),
        *((f"trainer.{key}", given.get(f"trainer.{key}"), total, end) for key in OF_RUN),
        ("checkpoint.every", every_epochs, settings.epochs, last),
        ("checkpoint.every", every_updates, total, end),
        ("checkpoint.keep_every", given.get("checkpoint.keep_every"), total, end),
        ("scheduler.warmup_epochs", given.get("scheduler.warmup_epochs"), in_epochs, last),
        ("scheduler.warmup_steps", given.get("scheduler.warmup_steps"), total, end),
        ("scheduler.every_epochs", given.get("scheduler.every_epochs"), (total - 1) / updates, last),
        ("scheduler.milestones", max(given.get("scheduler.milestones") or [0]), (total - 1) / updates, last),
        ("scheduler.patience", given.get("scheduler.patience"), evaluations - 2, evaluated),
    ]
    return [(key, limit) for key, size, most, limit in rows if size and size > most]


def of_other_data(section: Mapping[str, Any], loaders: Loaders) -> list[str]:
    """The keys of images that were set for text, and the other way round, of data that may be either."""
    if not {"image_size", "block_size"} <= section.keys():
        return []
    is_text = isinstance(loaders.train.batches.dataset, TokenDataset)
    keys, kind = (OF_IMAGES, "text") if is_text else (OF_TEXT, "images")
    usual = option_of("data", dict(section)) or section
    is_set = {key: key in section and section[key] != usual.get(key) for key in keys}
    return [f"data.{key}={section[key]}, since the data has {kind}" for key in keys if is_set[key]]


def _evaluations(settings: TrainSettings, updates: int) -> int:
    """The number of evaluations until the run's end, which is evaluated unless none is."""
    steps = settings.evaluate_steps or settings.evaluate_every * updates
    return math.ceil(settings.total_steps / steps) if steps else 0
