"""Declarations of an optimizer; most need only their YAML."""

from typing import ClassVar

from manyheads.runner.option.option import Option
from manyheads.runner.option.rules import OPTIMIZER, Tunable, always, choice, list_of, number, whole


class OptimizerOption(Option):
    """The keys that the optimizers of torch and Apex share, and how the learning rate is scaled to the batch size."""

    group = "optimizer"
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
