"""The keys that every run has: their allowed values, and which may be tuned. Options declare their own keys."""

from collections.abc import Sequence
from typing import Any

from manyheads.runner.checkpoint.retention import EVERY, STEPS
from manyheads.runner.option.rules import (
    AUTO,
    CLASS,
    COMPUTE,
    DURATION,
    NULL,
    PATH,
    PLACE,
    TEXT,
    KeyKind,
    Rule,
    Tunable,
    always,
    choice,
    either,
    is_whole,
    list_of,
    never,
    number,
    text,
    whole,
)
from manyheads.runner.option.run_config import RunConfig

SHARE = Rule(
    "a number from 0 to 1",
    lambda v: number(at_least=0).accepts(v) and v <= 1,
    {"type": "number", "minimum": 0, "maximum": 1},
    KeyKind.NUMBER,
)
MATCH = either(TEXT, Rule("", list_of(TEXT).accepts, {**list_of(TEXT).schema, "minItems": 1})).schema  # of patterns
EPOCHS = r"([1-9]\d*) or max_steps"  # a default, which does not shorten a run whose number of updates is set
LIMIT = either(whole(1), number(above=0, below=1))


def _is_group(value: Any) -> bool:
    """Whether a value is an entry of parameters.groups."""
    if not (isinstance(value, dict) and len(value) > 1 and not {"lr", "lr_factor"} <= value.keys()):
        return False
    return _is_match(value.get("match"))


def _is_rest(value: Any) -> bool:
    """Whether a value is an entry of parameters.freeze_epochs."""
    if not (isinstance(value, dict) and {"match"} < value.keys() <= {"match", "until", "from"}):
        return False
    return _is_match(value["match"]) and all(whole(1).accepts(value[key]) for key in value.keys() - {"match"})


def _is_match(value: Any) -> bool:
    return either(TEXT, list_of(TEXT)).accepts(value) and value != []


RULES: dict[str, Rule] = {
    "seed": whole(0, 2**63 - 1),  # torch takes 64 bits, and ranks add to it
    "name": TEXT,
    "tags": list_of(TEXT),
    "notes": TEXT,
    "loss._target_": either(CLASS, AUTO),
    "parameters.freeze": list_of(TEXT),
    "parameters.freeze_epochs": list_of(
        Rule(
            "match: one or more patterns, together with until or from, an epoch counted from 1",
            _is_rest,
            {
                "type": "object",
                "properties": {"match": MATCH, "until": whole(1).schema, "from": whole(1).schema},
                "required": ["match"],
                "minProperties": 2,
                "additionalProperties": False,
            },
            KeyKind.TEXT,
        )
    ),
    "parameters.norm_weight_decay": number(at_least=0),
    "parameters.bias_weight_decay": number(at_least=0),
    "parameters.layer_decay": Rule(
        "a number above 0 and at most 1",
        lambda v: number(above=0).accepts(v) and v <= 1,
        {"type": "number", "exclusiveMinimum": 0, "maximum": 1},
        KeyKind.NUMBER,
    ),
    "parameters.groups": list_of(
        Rule(
            "match: one or more patterns, together with lr or lr_factor, weight_decay or another setting",
            _is_group,
            {
                "type": "object",
                "properties": {"match": MATCH},
                "required": ["match"],
                "minProperties": 2,
                "not": {"required": ["lr", "lr_factor"]},
            },
            KeyKind.TEXT,  # an optimizer's settings for some of its parameters: its own keys
        )
    ),
    "trainer.epochs": either(whole(1), text("90 or max_steps", EPOCHS), NULL),
    "trainer.max_steps": whole(1),
    "trainer.stop_after": whole(1),
    "trainer.max_time": DURATION,
    "trainer.patience": whole(1),
    "trainer.min_delta": number(at_least=0),
    "trainer.evaluate_every": either(whole(0), text("500steps", f"(?=.*[1-9]){STEPS.pattern}")),
    "trainer.tta": choice("none", "flip", "flip_shift"),
    "trainer.limit_train": LIMIT,
    "trainer.limit_val": LIMIT,
    "trainer.limit_test": LIMIT,
    "trainer.overfit": whole(1),
    "trainer.grad_accumulation": whole(1),
    "trainer.clip_norm": number(above=0, infinite=True),
    "trainer.clip_value": number(above=0, infinite=True),
    "trainer.log_every": whole(1),
    "trainer.label_smoothing": number(at_least=0, below=1),
    "trainer.mixup_alpha": number(at_least=0),
    "trainer.cutmix_alpha": number(at_least=0),
    "trainer.mix_prob": SHARE,
    "trainer.mix_switch_prob": SHARE,
    "trainer.aug_repeats": whole(1),
    "trainer.resize_from": whole(1),
    "trainer.resize_start": SHARE,
    "trainer.resize_end": SHARE,
    "trainer.resize_step": whole(1),
    "trainer.ema_decay": number(at_least=0, below=1),
    "trainer.ema_every": whole(1),
    "trainer.swa_start": whole(1),
    "trainer.sam_rho": number(above=0),
    "trainer.sam_every": whole(1),
    "trainer.recompute": either(choice("selective"), list_of(TEXT)),
    "trainer.compile_units": list_of(TEXT),
    "trainer.compile": choice("none", "default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs"),
    "trainer.on_nan": choice("error", "skip"),
    "trainer.on_spike": choice("error", "skip", "rollback"),
    "trainer.spike_window": whole(10),
    "trainer.spike_threshold": number(above=0),
    "trainer.spike_span": whole(1),
    "trainer.verify_every": whole(0),
    "trainer.on_corruption": choice("error", "retry"),
    "trainer.device": choice("auto", "cuda", "cpu"),
    "checkpoint.every": Rule(
        "1epoch, 2epochs, ..., a number of updates, or 0 for never",
        lambda v: (is_whole(v) and v >= 0) or (isinstance(v, str) and bool(EVERY.fullmatch(v)) and v[0] != "0"),
        {"anyOf": [whole(0).schema, {"type": "string", "pattern": f"^(?!0){EVERY.pattern}$"}]},
        KeyKind.NUMBER,
    ),
    "checkpoint.format": choice("auto", "single", "sharded"),
    "checkpoint.keep": whole(0),
    "checkpoint.keep_every": whole(0),
    "checkpoint.keep_hours": number(at_least=0),
    "checkpoint.load": PATH,
    "checkpoint.resume": PATH,
    "checkpoint.mirror": PLACE,
    "checkpoint.mirror_wait": DURATION,
    "checkpoint.monitor": text("auto, or a column that an evaluation measures, such as val_loss", r"auto|val_[\s\S]*"),
}


MOST_MICRO_BATCHES = 8


def _micro_batches(run: RunConfig) -> list[int]:
    """Numbers of micro-batches into which the global batch can be divided, the most similar to the run's own first."""
    parts, accumulation = run.data.batch_size // run.data_shares, run.trainer.grad_accumulation
    counts = [count for count in range(1, max(MOST_MICRO_BATCHES, accumulation) + 1) if parts % count == 0]
    return sorted(counts, key=lambda count: max(count / accumulation, accumulation / count))


def _compiled(run: RunConfig) -> list[str]:
    return ["none", "default", *(["reduce-overhead", "max-autotune"] if run.on_gpus else [])]


COMPILING = {"default": 30.0, "reduce-overhead": 30.0, "max-autotune": 300.0}  # small models, on the CPU


def _units(run: RunConfig) -> Sequence[list[str]] | str:
    return "trainer.compile=none compiles nothing" if run.trainer.compile == "none" else [[], ["auto"]]


def _formats(run: RunConfig) -> Sequence[bool] | str:
    return "the data has no images" if run.data.image_size is None else [True, False]


# Keys that change how the same updates are computed. BatchNorm's statistics are over a micro-batch, though.
TUNABLE: dict[str, Tunable] = {
    "trainer.channels_last": Tunable(COMPUTE, _formats),
    "trainer.compile": Tunable(COMPUTE, _compiled, startup=COMPILING),
    "trainer.compile_units": Tunable(COMPUTE, _units),
    "trainer.grad_accumulation": Tunable(COMPUTE, _micro_batches),
    "trainer.recompute": Tunable(COMPUTE, never("recomputing saves memory, and takes time")),
    "trainer.deterministic": Tunable(COMPUTE, never("it is set on purpose; without it torch chooses the fastest")),
    "trainer.detect_anomaly": Tunable(COMPUTE, always(False)),
    "trainer.device": Tunable(COMPUTE, never("the speed of another device is another question")),
}


def rules_of(section: str) -> dict[str, Rule]:
    """The rules of one section, by key."""
    return {key.partition(".")[2]: rule for key, rule in RULES.items() if key.startswith(f"{section}.")}
