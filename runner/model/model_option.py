"""Declarations of a model; most need only their YAML."""

from typing import ClassVar

from manyheads.runner.option.option import Option
from manyheads.runner.option.rules import BOOLEAN, PLACE, either, whole
from manyheads.runner.option.source_file import source_file


class ModelOption(Option):
    """The declaration of any model that has none of its own."""

    group = "model"
    rules: ClassVar = {"num_classes": whole(1), "pretrained": either(BOOLEAN, PLACE)}
    num_classes: int | None = None
    pretrained: str | bool | None = None

    @property
    def title(self) -> str:
        """The option's name; for the user's own class, also the file or module that defines it."""
        if self.target.startswith("manyheads."):
            return self.name
        file = source_file(self.target)
        module, _, name = self.target.rpartition(".") if file is None else (file.path.name, "", file.name)
        return f"{name} in {module}" if self.name in (name, "custom") else f"{self.name}, {name} in {module}"

    @property
    def treats_samples_alone(self) -> bool:
        """Whether it lacks BatchNorm, dropout and stochastic depth, so results cannot depend on the number of ranks."""
        return False
