"""Declarations of model=airbench."""

from typing import ClassVar

from manyheads.runner.model.model_option import ModelOption
from manyheads.runner.option.rules import list_of, number, whole


class AirbenchOption(ModelOption):
    """Convolutions with BatchNorm, after a whitening layer."""

    rules: ClassVar = {
        "widths": list_of(whole(1)),
        "batchnorm_momentum": number(above=0, below=1),
        "whitening_samples": whole(1),
        "whitening_eps": number(above=0),
    }
