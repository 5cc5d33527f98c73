"""Declarations of model=mlp."""

from typing import ClassVar

from manyheads.runner.model.model_option import ModelOption
from manyheads.runner.option.rules import whole


class MLPOption(ModelOption):
    """Linear layers without dropout or BatchNorm."""

    rules: ClassVar = {"width": whole(1), "depth": whole(0), "num_inputs": whole(1)}
    treats_samples_alone = True
