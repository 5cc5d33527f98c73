"""Declarations of model=small_cnn."""

from typing import ClassVar

from manyheads.runner.model.model_option import ModelOption
from manyheads.runner.option.rules import whole


class SmallCNNOption(ModelOption):
    """Convolutions and a linear layer."""

    rules: ClassVar = {"width": whole(1)}
    treats_samples_alone = True
