"""Declarations of an optimizer; most need only their YAML."""

import math
from collections.abc import Sequence
from typing import ClassVar

from manyheads.runner.option.option import Option
from manyheads.runner.option.rules import OPTIMIZER, Tunable, always, choice, list_of, number, whole

SCALING = {"none": lambda ratio: 1.0, "linear": lambda ratio: ratio, "sqrt": math.sqrt}


class OptimizerOption(Option):
    """The keys that the optimizers of torch and Apex share, and how the learning rate is scaled to the batch size.

    ``builder``: the function that builds it, if it consists of several.
    """

    group = "optimizer"
    builder: ClassVar[str | None] = None
    tunable: ClassVar = {"fused": Tunable(OPTIMIZER, always(True, False))}
    rules: ClassVar = {
        "lr": number(above=0),
        "lr_scaling": choice("none", "linear", "sqrt"),
        "base_batch_size": whole(1),
        "weight_decay": number(at_least=0),
        "momentum": number(at_least=0),
        "dampening": number(at_least=0),
        "betas": list_of(number(at_least=0, below=1)),
        "eps": number(above=0),
    }
    lr: float
    lr_scaling: str
    base_batch_size: int

    @property
    def singles(self) -> Sequence["OptimizerOption"]:
        """The optimizers that it consists of."""
        return [self]

    def scaled_lr(self, batch_size: int) -> float:
        """``optimizer.lr`` scaled to the global batch size by the rule ``optimizer.lr_scaling``.

        Sources: linear, Goyal et al. 2017 (https://arxiv.org/abs/1706.02677); sqrt, Krizhevsky 2014
        (https://arxiv.org/abs/1404.5997).
        """
        return self.lr * SCALING[self.lr_scaling](batch_size / self.base_batch_size)

    def lr_in_words(self, batch_size: int) -> str:
        """The learning rate, and how it was scaled to the batch."""
        lr = self.scaled_lr(batch_size)
        if self.lr_scaling == "none":
            return f"lr {lr:g}"
        return f"lr {lr:g} = {self.lr:g} scaled by {batch_size}/{self.base_batch_size}, {self.lr_scaling}"
