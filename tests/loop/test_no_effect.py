"""What a user sets is honoured, refused or said to change nothing; a default never overrides it silently."""

from types import SimpleNamespace

import numpy as np
import pytest

from manyheads.runner.config.lookup import CONF, options, read, read_option
from manyheads.runner.data.rank.in_memory import TokenDataset
from manyheads.runner.data.samples import TokenBlocks
from manyheads.runner.errors import ConfigurationError
from manyheads.runner.loop.no_effect import NEEDS, no_effect, of_other_data
from manyheads.runner.loop.train_settings import TrainSettings
from tests.in_process import typed

BASE = read(CONF / "config.yaml")
UPDATES, BATCHES = 20, 5  # of an epoch, of an evaluation
# Keys whose every value changes the run, however the others are set.
ALONE = {
    *(f"trainer.{key}" for key in ("epochs", "max_steps", "stop_after", "max_time", "evaluate_only", "test")),
    *(f"trainer.{key}" for key in ("grad_accumulation", "clip_norm", "clip_value", "label_smoothing", "aug_repeats")),
    *(f"trainer.{key}" for key in ("mixup_alpha", "cutmix_alpha", "resize_from", "ema_decay", "sam_rho", "recompute")),
    *(f"trainer.{key}" for key in ("channels_last", "compile", "deterministic", "detect_anomaly", "device")),
    *(f"trainer.{key}" for key in ("on_nan", "on_spike")),
    *(f"checkpoint.{key}" for key in ("load", "resume", "mirror")),
}
REFUSED = {  # if they cannot act, with the other key
    "trainer.compile_units": ("trainer.compile_units=[auto]", "trainer.compile"),
    "trainer.swa_start": ("trainer.swa_start=3", "2 epochs"),
    "checkpoint.monitor": ("checkpoint.monitor=val_loss trainer.evaluate_every=0", "trainer.evaluate_every"),
    "trainer.patience": ("trainer.patience=2 trainer.evaluate_every=0", "trainer.evaluate_every"),
}
# Each beyond the 40 updates, 2 epochs or 2 evaluations of the run, and the greatest value that is not.
LONG = {
    "trainer.log_every": (21, 20),
    "trainer.limit_train": (21, 20),
    "trainer.overfit": (21, 20),
    "trainer.limit_val": (6, 5),
    "trainer.evaluate_every": (3, 2),
    "trainer.patience": (2, 1),
    "trainer.verify_every": (41, 40),
    "checkpoint.every": (41, 40),
    "checkpoint.keep_every": (41, 40),
    "trainer.evaluate_every ": ("41steps", "40steps"),
    "checkpoint.every ": ("3epochs", "2epochs"),
    "trainer.ema_decay=0.9 trainer.ema_every": (41, 40),
    "trainer.sam_rho=0.1 trainer.sam_every": (41, 40),
    "scheduler.warmup_epochs": (2.1, 2),
    "scheduler.warmup_steps": (41, 40),
    "scheduler=step scheduler.every_epochs": (2, 1.9),
    "scheduler=multistep scheduler.milestones": ("[1,2]", "[1,1.9]"),
    "scheduler=plateau scheduler.patience": (1, 0),
}
OTHERS = {
    "checkpoint.every": "5",
    "trainer.tta": "flip",
    "trainer.on_corruption": "retry",
    "checkpoint.format": "single",
    "trainer.mix_switch_prob": "0.2",
}
NEEDED = [(f"{section}.{name}", others) for others, section, names in NEEDS for name in names]


def said(*overrides):
    run = typed("trainer.epochs=2", *overrides)
    loader = SimpleNamespace(updates=UPDATES)
    loaders = SimpleNamespace(train=loader, val=SimpleNamespace(updates=BATCHES))
    settings = TrainSettings.of(run.trainer, UPDATES)
    return no_effect(run.trainer, run.checkpoint, run.scheduler, settings=settings, loaders=loaders)


@pytest.mark.parametrize(
    ("dataset", "says"),
    [
        (TokenDataset(TokenBlocks(np.arange(64), 8, "")), "data.image_size=64, since the data has text"),
        (None, "data.block_size=64, since the data has images"),
    ],
)
def test_keys_of_images_are_said_to_have_no_effect_on_text(dataset, says):
    section = {**read_option("data", "tar"), "image_size": 64, "block_size": 64}
    loaders = SimpleNamespace(train=SimpleNamespace(batches=SimpleNamespace(dataset=dataset)))
    assert of_other_data(section, loaders) == [says]


def test_keys_of_a_schedule_of_ones_own_are_not_taken_for_epochs():
    assert (
        said(
            *("scheduler=custom", "scheduler._target_=torch.optim.lr_scheduler.MultiStepLR"),
            "+scheduler.milestones=[30]",
        )
        == {}
    )


def another(key):
    """A value that is not the default of this key."""
    section, name = key.split(".")
    default = BASE[section][name]
    if key in OTHERS:
        return OTHERS[key]
    if isinstance(default, bool):
        return str(not default).lower()
    return {"10m": "5m"}.get(default, 0.5 if isinstance(default, float) else 15)


def off(key):
    return {"trainer.evaluate_every": ["trainer.evaluate_every=0"], "checkpoint.every": ["checkpoint.every=0"]}.get(
        key, []
    )


@pytest.mark.parametrize(("key", "needed"), NEEDED)
def test_a_key_of_a_feature_that_is_off_is_said_to_have_no_effect(key, needed):
    value = another(key)
    rows = said(f"{key}={value}", *(word for other in needed for word in off(other)))
    assert f"{key}={value}, without {' or '.join(needed)}" in rows["no effect"].split("; ")


def test_every_key_is_honoured_refused_or_said():
    keys = {f"{section}.{name}" for section in ("trainer", "checkpoint") for name in BASE[section]}
    assert keys == {*ALONE, *REFUSED, *(key for key, _ in NEEDED)} | {
        key.split()[-1] for key in LONG if not key.split()[-1].startswith("sch")
    }


@pytest.mark.parametrize(("overrides", "other"), REFUSED.values())
def test_what_cannot_act_is_refused_with_the_key_to_set(overrides, other):
    with pytest.raises(ConfigurationError, match=other):
        typed("trainer.epochs=2", *overrides.split())


@pytest.mark.parametrize("key", LONG)
def test_what_the_run_does_not_reach_is_said(key):
    beyond, within = (f"{key.strip()}={value}".split() for value in LONG[key])
    key, _, value = beyond[-1].partition("=")
    assert said(*beyond)["unreached"].startswith(f"{key}={value.replace(',', ', ')} (")
    assert said(*within) == {}


@pytest.mark.parametrize("scheduler", sorted({*options("scheduler")} - {"custom"}))
def test_defaults_are_reported_only_of_a_schedule_that_would_do_nothing(scheduler):
    does_nothing = {"step": "every_epochs=30", "multistep": "milestones=[30, 60, 80]", "plateau": "patience=10"}
    text = said(f"scheduler={scheduler}").get("unreached", "")
    assert text.startswith(f"scheduler.{does_nothing[scheduler]} (" if scheduler in does_nothing else "")
    assert bool(text) == (scheduler in does_nothing)


@pytest.mark.parametrize("experiment", options("experiment"))
def test_no_experiment_sets_what_has_no_effect(experiment):
    sections = read(CONF / "experiment" / f"{experiment}.yaml")
    keys = {
        f"{section}.{key}": value
        for section in ("trainer", "checkpoint")
        for key, value in sections.get(section, {}).items()
    }
    assert "no effect" not in said(*(f"{key}={value}" for key, value in keys.items() if key != "trainer.epochs"))
