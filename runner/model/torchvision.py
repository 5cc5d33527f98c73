"""Declarations of the models of torchvision."""

from typing import ClassVar

from manyheads.runner.model.model_option import ModelOption
from manyheads.runner.option.rules import number

ALONE = ("vit_b_16",)  # its dropout is 0 by default


class TorchvisionOption(ModelOption):
    """A torchvision model by its name."""

    rules: ClassVar = {"stochastic_depth_prob": number(at_least=0)}

    @property
    def treats_samples_alone(self) -> bool:
        return self.name in ALONE
