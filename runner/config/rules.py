"""Which values a key of the run config may have: one rule a key, in the words that an error prints."""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

from manyheads.runner.checkpoint.every import EVERY


class Rule(NamedTuple):
    """``allowed`` completes the sentence "allowed: ..."."""

    allowed: str
    accepts: Callable[[Any], bool]


def is_whole(value: Any) -> bool:
    """Whether it is an int, of which bool is none here."""
    return isinstance(value, int) and not isinstance(value, bool)


def is_number(value: Any) -> bool:
    """Whether it is an int or a float, infinity included, NaN not."""
    return is_whole(value) or (isinstance(value, float) and not math.isnan(value))


def whole(lowest: int, highest: int | None = None) -> Rule:
    """A whole number between these bounds, which are allowed themselves."""
    text = f"a whole number from {lowest}" + (f" to {highest}" if highest is not None else "")
    return Rule(text, lambda v: is_whole(v) and v >= lowest and (highest is None or v <= highest))


def number(
    *, at_least: float | None = None, above: float | None = None, below: float | None = None, infinite: bool = False
) -> Rule:
    """A number within these bounds."""
    bounds = [("at least", at_least), ("above", above), ("below", below)]
    text = " ".join(["a number", *(f"{word} {bound:g}" for word, bound in bounds if bound is not None)])
    return Rule(
        text + (" or inf" if infinite else ""),
        lambda v: (
            is_number(v)
            and (infinite or math.isfinite(v))
            and (at_least is None or v >= at_least)
            and (above is None or v > above)
            and (below is None or v < below)
        ),
    )


def choice(*values: str) -> Rule:
    """One of these words."""
    return Rule(", ".join(values), lambda v: v in values)


def either(*rules: Rule) -> Rule:
    """What any of these rules accepts."""
    return Rule(" or ".join(rule.allowed for rule in rules), lambda v: any(rule.accepts(v) for rule in rules))


def list_of(rule: Rule) -> Rule:
    """A list whose items all follow one rule."""
    return Rule(f"a list, each {rule.allowed}", lambda v: isinstance(v, list) and all(map(rule.accepts, v)))


NULL = Rule("null", lambda v: v is None)
BOOLEAN = Rule("true or false", lambda v: isinstance(v, bool))
TEXT = Rule("text", lambda v: isinstance(v, str) and v != "")
AUTO = choice("auto")
CLASS = Rule("the dotted name of a class", lambda v: isinstance(v, str) and "." in v)

ALIKE = {
    whole(0): "seed trainer.evaluate_every checkpoint.keep data.num_workers parallel.output_device",
    whole(1): (
        "trainer.epochs trainer.max_steps trainer.stop_after trainer.grad_accumulation trainer.log_every "
        "model.num_classes model.width data.image_size data.num_classes data.train_samples data.val_samples "
        "data.batch_size optimizer.base_batch_size parallel.message_size precision.growth_interval "
        "launcher.start_timeout"
    ),
    number(at_least=0): (
        "optimizer.momentum optimizer.dampening optimizer.weight_decay scheduler.final_factor scheduler.warmup_epochs "
        "parallel.fusion_threshold"
    ),
    number(above=0): (
        "optimizer.lr optimizer.max_grad_norm optimizer.eps scheduler.every_epochs scheduler.gamma parallel.timeout "
        "parallel.bucket_cap_mb parallel.gradient_predivide_factor parallel.cycle_time precision.init_scale "
        "launcher.stall_timeout launcher.timeout"
    ),
    TEXT: (
        "checkpoint.load checkpoint.resume model.pretrained data.root parallel.timeline launcher.hostfile "
        "launcher.network_interface launcher.arguments"
    ),
    BOOLEAN: "precision.keep_batchnorm_fp32 precision.master_weights",
}
RULES: dict[str, Rule] = {
    **{key: rule for rule, keys in ALIKE.items() for key in keys.split()},
    "trainer.clip_norm": number(above=0, infinite=True),
    "trainer.label_smoothing": number(at_least=0, below=1),
    "trainer.compile": choice("none", "default", "reduce-overhead", "max-autotune"),
    "trainer.on_nan": choice("error", "skip"),
    "trainer.device": choice("auto", "cuda", "cpu"),
    "checkpoint.every": Rule(
        "1epoch, 2epochs, ..., a number of updates, or 0 for never",
        lambda v: (is_whole(v) and v >= 0) or (isinstance(v, str) and bool(EVERY.fullmatch(v)) and v[0] != "0"),
    ),
    "checkpoint.monitor": Rule(
        "auto, or what an evaluation measures, such as val_loss", lambda v: v == "auto" or str(v).startswith("val_")
    ),
    "task.reduction": choice("auto", "mean", "sum"),
    "data.on_corrupt": choice("error", "skip"),
    "data.fingerprint": choice("sizes", "contents", "none"),
    "data.augment": choice("none", "crop_flip"),
    "optimizer.norm_type": Rule("2 or 0", lambda v: is_whole(v) and v in (0, 2)),
    "optimizer.betas": list_of(number(at_least=0, below=1)),
    "optimizer.lr_scaling": choice("none", "linear", "sqrt"),
    "parallel.backend": choice("auto", "nccl", "gloo"),
    "parallel.device_ids": list_of(whole(0)),
    "parallel.compression": choice("none", "fp16", "bf16"),
    "parallel.op": choice("average", "sum", "adasum"),
    "parallel.backward_passes_per_step": either(whole(1), AUTO),
    "parallel.num_groups": either(whole(0), AUTO),
    "precision.level": choice("O1", "O2"),
    "precision.dtype": choice("auto", "float16", "bfloat16"),
    "precision.opt_level": choice("O0", "O1", "O2", "O3"),
    "precision.loss_scale": either(number(above=0), choice("dynamic")),
    "launcher.nproc_per_node": either(whole(1), AUTO),
    "launcher.threads_per_rank": either(whole(1), AUTO),
    "launcher.controller": choice("auto", "gloo", "mpi"),
    "launcher.hosts": list_of(TEXT),
}


def rule_for(key: str, default: Any) -> Rule | None:
    """The key's rule; without one, values must be of the kind of its default; anything goes over null.

    Null itself is allowed where it is the default.
    """
    if key.endswith("._target_"):
        return CLASS
    if key in RULES:
        return RULES[key] if default is not None else either(RULES[key], NULL)
    if isinstance(default, bool):
        return BOOLEAN
    if is_number(default):
        return number()
    if isinstance(default, str):
        return TEXT
    return None
