"""The weights alone, as safetensors, which anything can read without running code."""

import copy
from pathlib import Path

from torch import Tensor, nn

from manyheads.runner.serve.rank.export.served import Served


def write(served: Served, examples: Tensor, file: Path, facts: dict[str, str]) -> None:
    """The model's own names; ``facts`` become the file's metadata. Of weights that are tied one name is kept."""
    from safetensors.torch import save_model

    save_model(served.model, str(file), metadata={**facts, "format": "pt"}, force_contiguous=True)


def outputs(file: Path, served: Served, images: Tensor) -> Tensor:
    """The model's outputs, computed only with the weights in the file."""
    from safetensors.torch import load_model

    again = copy.deepcopy(served)
    _forget(again.model)
    load_model(again.model, file)
    return again(images)


def _forget(model: nn.Module) -> None:
    for tensor in model.state_dict().values():
        tensor.zero_()
