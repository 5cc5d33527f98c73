"""The depth of each parameter in its model, for learning rates that decay from the head to the first layer."""

from torch import nn

from manyheads.runner.parallel.rank.units import find_units
from manyheads.runner.run.errors import ConfigurationError


def heights(model: nn.Module) -> dict[str, int]:
    """Number of layers above each parameter, by name; 0 for the head's.

    Layers are the model's repeated blocks, or those of the classes in its ``_no_split_modules``. Modules before the
    first block form another layer, modules after the last one the head, and modules between two blocks belong to the
    earlier one. Raises ConfigurationError for a model without such blocks.
    """
    units = set(find_units(model, "auto", key="parameters.layer_decay"))
    names = [name for name, _ in model.named_parameters()]
    owner = {name: next((unit for unit in units if name.startswith(f"{unit}.")), None) for name in names}
    inside = [index for index, name in enumerate(names) if owner[name] is not None]
    if not inside:
        raise ConfigurationError(
            f"parameters.layer_decay: {type(model).__name__} has no repeated blocks to count as layers. Set it to "
            "null, and set learning rates with parameters.groups."
        )
    begun: list[str | None] = []
    depth = {}
    for index, name in enumerate(names):
        if owner[name] is not None and owner[name] not in begun:
            begun.append(owner[name])
        depth[name] = len(begun) + (index > inside[-1])
    deepest = len(begun) + 1
    return {name: deepest - found for name, found in depth.items()}
