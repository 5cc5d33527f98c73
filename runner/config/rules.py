"""Which values the keys that every run has may take; those of an option stand with what it declares."""

from manyheads.runner.checkpoint.every import EVERY
from manyheads.runner.option.rules import AUTO, CLASS, TEXT, Rule, choice, either, is_whole, list_of, number, whole

RULES: dict[str, Rule] = {
    "seed": whole(0),
    "name": TEXT,
    "tags": list_of(TEXT),
    "notes": TEXT,
    "loss._target_": either(CLASS, AUTO),
    "trainer.epochs": whole(1),
    "trainer.max_steps": whole(1),
    "trainer.stop_after": whole(1),
    "trainer.evaluate_every": whole(0),
    "trainer.grad_accumulation": whole(1),
    "trainer.clip_norm": number(above=0, infinite=True),
    "trainer.log_every": whole(1),
    "trainer.label_smoothing": number(at_least=0, below=1),
    "trainer.compile": choice("none", "default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs"),
    "trainer.on_nan": choice("error", "skip"),
    "trainer.device": choice("auto", "cuda", "cpu"),
    "checkpoint.every": Rule(
        "1epoch, 2epochs, ..., a number of updates, or 0 for never",
        lambda v: (is_whole(v) and v >= 0) or (isinstance(v, str) and bool(EVERY.fullmatch(v)) and v[0] != "0"),
    ),
    "checkpoint.format": choice("auto", "single", "sharded"),
    "checkpoint.keep": whole(0),
    "checkpoint.keep_every": whole(0),
    "checkpoint.keep_hours": number(at_least=0),
    "checkpoint.load": TEXT,
    "checkpoint.resume": TEXT,
    "checkpoint.monitor": Rule(
        "auto, or what an evaluation measures, such as val_loss", lambda v: v == "auto" or str(v).startswith("val_")
    ),
}


def rules_of(section: str) -> dict[str, Rule]:
    """The rules of one section, by key."""
    return {key.partition(".")[2]: rule for key, rule in RULES.items() if key.startswith(f"{section}.")}
