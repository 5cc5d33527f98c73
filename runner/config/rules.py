"""Which values the keys that every run has may take; those of an option stand with what it declares."""

from manyheads.runner.checkpoint.every import EVERY
from manyheads.runner.option.rules import TEXT, Rule, choice, is_whole, number, whole

RULES: dict[str, Rule] = {
    "seed": whole(0),
    "trainer.epochs": whole(1),
    "trainer.max_steps": whole(1),
    "trainer.stop_after": whole(1),
    "trainer.evaluate_every": whole(0),
    "trainer.grad_accumulation": whole(1),
    "trainer.clip_norm": number(above=0, infinite=True),
    "trainer.log_every": whole(1),
    "trainer.label_smoothing": number(at_least=0, below=1),
    "trainer.compile": choice("none", "default", "reduce-overhead", "max-autotune"),
    "trainer.on_nan": choice("error", "skip"),
    "trainer.device": choice("auto", "cuda", "cpu"),
    "checkpoint.every": Rule(
        "1epoch, 2epochs, ..., a number of updates, or 0 for never",
        lambda v: (is_whole(v) and v >= 0) or (isinstance(v, str) and bool(EVERY.fullmatch(v)) and v[0] != "0"),
    ),
    "checkpoint.keep": whole(0),
    "checkpoint.load": TEXT,
    "checkpoint.resume": TEXT,
    "checkpoint.monitor": choice("val_acc1", "val_acc5", "val_loss"),
}


def rules_of(section: str) -> dict[str, Rule]:
    """The rules of one section, by key."""
    return {key.partition(".")[2]: rule for key, rule in RULES.items() if key.startswith(f"{section}.")}
