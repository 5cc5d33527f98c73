"""What a step has to do at least: floating-point operations, and bytes to read and write."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import FlopCounterMode
from torchvision import models

from tests.benchmarks.gpu.ready import CLASSES

UNWRITTEN = ("empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided")
SOME = 2  # BatchNorm wants two samples


def network(name: str, image_size: int) -> nn.Module:
    """torchvision's model, as a tutorial makes it."""
    options = {"image_size": image_size} if name.startswith("vit_") else {}
    return models.get_model(name, num_classes=CLASSES, **options)


def flops_per_sample(name: str, image_size: int) -> float:
    """Of the matrix products and convolutions of forward and backward pass, a multiplication and an addition each.

    Source: torch.utils.flop_counter, https://github.com/pytorch/pytorch/blob/main/torch/utils/flop_counter.py.
    """
    with torch.device("meta"):
        model, images = network(name, image_size), torch.empty(SOME, 3, image_size, image_size)
    with FlopCounterMode(display=False) as counter:
        model(images).sum().backward()
    return counter.get_total_flops() / SOME


class Traffic(TorchDispatchMode):
    """Counts ``bytes``: of each operation all that it is given and all that it returns, once.

    That is what operations that share nothing have to move to and from memory. A cache may save some of it, and an
    operation that reads its input twice, as BatchNorm does, moves more; those that only look at memory in another
    way move nothing. What torch.compile fuses it can't see.
    """

    def __init__(self) -> None:
        super().__init__()
        self.bytes = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        result = func(*args, **kwargs)
        given, returned = tensors((args, kwargs)), tensors(result)
        memory = {tensor.untyped_storage().data_ptr() for tensor in given}
        is_view = all(tensor.untyped_storage().data_ptr() in memory for tensor in returned)
        if func.overloadpacket.__name__ in UNWRITTEN or (is_view and not func._schema.is_mutable):
            return result
        written = returned or changed(func, args, kwargs)
        self.bytes += sum(tensor.nbytes for tensor in (*given, *written))
        return result


def tensors(tree: Any) -> list[Tensor]:
    return [leaf for leaf in tree_leaves(tree) if isinstance(leaf, Tensor)]


def changed(func: Any, args: Any, kwargs: Any) -> list[Tensor]:
    """What an operation changes in place and does not return, such as _foreach_add_."""
    named = {argument.name: value for argument, value in zip(func._schema.arguments, args, strict=False)} | kwargs
    written = [a.name for a in func._schema.arguments if a.alias_info is not None and a.alias_info.is_write]
    return tensors([named.get(name) for name in written])
