"""What is wrong with samples of a user's own, in a sentence about the sample and what to do."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from torch import Tensor

from manyheads.runner.data.samples import Dataset
from manyheads.runner.errors import ConfigurationError
from manyheads.runner.task.rank.task import Task

EXAMPLE = "such as `return image, 3`: a tensor (C, H, W) or a NumPy array, and a class number"
REMEDY = (
    "Leave it out in __init__, so that __len__ does not count it; or set data.on_corrupt=skip, and use the next one."
)


def is_none(dataset: Dataset, index: int) -> ConfigurationError:
    """The error for a sample that is None."""
    return ConfigurationError(
        f"sample {index} of {type(dataset).__name__} is None. Its __getitem__ must return a sample for each index, "
        f"{EXAMPLE}. {REMEDY}",
        key="data.on_corrupt",
        value="error",
    )


def is_filtered(collate: Any, content: Any, ids: Sequence[int]) -> ConfigurationError | None:
    """The error for a batch from which the user's ``collate`` has dropped samples; None if it has not."""
    sizes = {len(tensor) if tensor.ndim else 0 for tensor in _tensors(content)}
    if len(sizes) != 1 or not 0 < (left := sizes.pop()) < len(ids):
        return None
    name, listed = getattr(collate, "__qualname__", type(collate).__name__), ", ".join(map(str, ids[:8]))
    return ConfigurationError(
        f"{name} returned {left} of the {len(ids)} samples {listed}{', ...' if len(ids) > 8 else ''}, so their number "
        "in results and gradients would be wrong. Leave samples out in __init__ instead, so that __len__ does not "
        "count them; or let __getitem__ return None for them, and set data.on_corrupt=skip.",
        key="data._target_",
    )


def not_stacked(samples: Sequence[Any], ids: Sequence[int], error: Exception) -> ConfigurationError:
    """The error for samples that torch's default_collate cannot make a batch of."""
    values = [dict(_leaves(sample)) for sample in samples]
    for number, leaves in enumerate(values):
        for path, value in leaves.items():
            where, first = f"sample {ids[number]}{path}", values[0].get(path)
            if hasattr(value, "getbands"):
                return ConfigurationError(
                    f"{where} is a PIL image. Add data.transform='[{{_target_: torchvision.transforms.v2.PILToTensor}}]"
                    "' (and data.val_transform), or return a tensor.",
                    key="data.transform",
                )
            if (shape := getattr(value, "shape", None)) != (other := getattr(first, "shape", None)):
                shapes = [size and (*size,) for size in (shape, other)]
                return ConfigurationError(
                    f"{where} has shape {shapes[0]}, and sample {ids[0]}{path} has {shapes[1]}: samples of unequal "
                    "size can't be stacked. Crop or resize them with data.transform and data.val_transform, or give "
                    "the class a collate_fn that pads them.",
                    key="data.transform",
                )
            if type(value) is not type(first):
                other = f"is {type(first).__name__}" if path in values[0] else "is missing"
                is_other = f"is {type(value).__name__}, and sample {ids[0]}{path} {other}"
                return ConfigurationError(f"{where} {is_other}. Return the same types for each index, {EXAMPLE}.")
    return ConfigurationError(
        f"samples {', '.join(map(str, ids[:3]))}, ... of type {type(samples[0]).__name__} can't be stacked to a batch "
        f"({str(error).partition(chr(10))[0]}). Return tensors, arrays or numbers, {EXAMPLE}; or give the class a "
        "collate_fn."
    )


def refuse_unordered(task: Task, content: Any) -> None:
    """Raises ConfigurationError for a batch without an order of input and target, if the task needs one."""
    if type(task).inputs is not Task.inputs or isinstance(content, (tuple, list)):
        return
    if not isinstance(content, (Mapping, Tensor)):  # a class of the user's own may have an order
        return
    keys = [*content] if isinstance(content, Mapping) else []
    kind = f"are dicts ({', '.join(map(str, keys))})" if keys else "are single tensors, without a target"
    pair = ", ".join(f'sample["{key}"]' for key in keys[:2]) or "image, 3"
    raise ConfigurationError(
        f"the data set's samples {kind}, and this task takes an input and a target. Let __getitem__ return both, "
        f"such as `return {pair}`; or set task=own_loss for a model that takes the samples unchanged, and returns its "
        "loss.",
        key="data._target_",
    )


def _leaves(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping):
        for key, item in value.items():
            yield from _leaves(item, f'{path}["{key}"]')
    elif isinstance(value, (tuple, list)):
        for number, item in enumerate(value):
            yield from _leaves(item, f"{path}[{number}]")
    else:
        yield path, value


def _tensors(content: Any) -> list[Tensor]:
    """The tensors of a batch that is a tuple or list of them, one for each part of a sample."""
    return [*content] if isinstance(content, (tuple, list)) and all(isinstance(e, Tensor) for e in content) else []
