"""Declarations of task=own_loss."""

from collections.abc import Mapping
from typing import Any, ClassVar

from manyheads.runner.errors import ConfigurationError
from manyheads.runner.option.rules import AUTO, INTEGER, TEXT, KeyKind, Rule, choice, either, is_whole
from manyheads.runner.option.run_config import RunConfig
from manyheads.runner.task.task_option import TaskOption

OF_TOKENS = ("loss", "perplexity")
MEASURES = {"samples": ("loss", "acc1", "acc5"), "tokens": OF_TOKENS, "next_tokens": OF_TOKENS}


def _is_named(value: Any) -> bool:
    return isinstance(value, dict) and all(
        isinstance(name, str) and name.isidentifier() and better in ("max", "min") for name, better in value.items()
    )


KEY_OR_POSITION = Rule(
    "the key or the position of an entry",
    lambda v: TEXT.accepts(v) or is_whole(v),
    {"anyOf": [TEXT.schema, INTEGER.schema]},
    KeyKind.TEXT,
)
NAMED = Rule(
    "names, each with max or min, whichever is better",
    _is_named,
    {"type": "object", "propertyNames": {"pattern": r"^[^\W\d]\w*$"}, "additionalProperties": {"enum": ["max", "min"]}},
    KeyKind.TEXT,
)


class OwnLossOption(TaskOption):
    """The model's own loss."""

    rules: ClassVar = {
        "loss_over": choice(*MEASURES),
        "reduction": choice("mean", "sum"),
        "ignore_index": INTEGER,
        "labels": either(AUTO, KEY_OR_POSITION),
        "inputs": either(AUTO, KEY_OR_POSITION),
        "metrics": NAMED,
    }
    loss = None
    loss_over: str
    metrics: Mapping[str, str]

    @property
    def measures(self) -> tuple[str, ...]:  # type: ignore[override]
        return (*MEASURES[self.loss_over], *(self.metrics or {}))

    def check_run(self, run: RunConfig) -> None:
        super().check_run(run)
        if run.parallel.replicates and run.on_gpus:
            raise ConfigurationError.at(
                "task",
                "own_loss",
                f": parallel={run.parallel.name} has a replica on each GPU, each with its own mean "
                "loss over an unknown number of elements. Set parallel=ddp.",
            )
