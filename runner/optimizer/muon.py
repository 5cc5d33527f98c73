"""Declarations of optimizer=muon."""

from typing import ClassVar

from manyheads.runner.optimizer.optimizer_option import OptimizerOption
from manyheads.runner.option.rules import choice, number, whole


class MuonOption(OptimizerOption):
    """An AdamW with additional keys for the Newton-Schulz iteration and for SGD."""

    rules: ClassVar = {
        "momentum": number(at_least=0, below=1),
        "ns_steps": whole(1),
        "method": choice("muon", "adamw", "sgd"),
        "step_size": choice("adamw", "orthogonal"),
    }
