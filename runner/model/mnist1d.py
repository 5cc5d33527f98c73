"""Declarations of model=mnist1d."""

from typing import ClassVar

from manyheads.runner.model.model_option import ModelOption
from manyheads.runner.option.rules import choice


class Mnist1DModelOption(ModelOption):
    """Four small networks without dropout or BatchNorm."""

    rules: ClassVar = {"kind": choice("linear", "mlp", "cnn", "gru")}
    treats_samples_alone = True
