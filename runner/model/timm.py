"""Declarations of model=timm."""

from typing import ClassVar

from manyheads.runner.model.model_option import ModelOption
from manyheads.runner.option.locate import missing
from manyheads.runner.option.rules import KeyKind, Rule, number


class TimmOption(ModelOption):
    """A timm model by its name."""

    rules: ClassVar = {
        "drop_rate": number(at_least=0, below=1),
        "drop_path_rate": number(at_least=0, below=1),
        "options": Rule("a mapping", lambda v: isinstance(v, dict), {"type": "object"}, KeyKind.ANYTHING),
    }

    def unavailable(self) -> str | None:
        return missing("timm", extra="timm")

    def note(self) -> str:
        return "any of its image models, by model.name"
