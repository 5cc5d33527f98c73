"""Which operations make the host wait for the GPU, as torch.cuda.set_sync_debug_mode would report them there."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves


class Wait(NamedTuple):
    """``where``: the project's innermost function, as file:name."""

    operation: str
    where: str


# Their result, or its size, depends on values on the device.
READING = {
    "_local_scalar_dense",
    "nonzero",
    "masked_select",
    "bincount",
    "equal",
    "allclose",
    "_unique2",
    "unique_consecutive",
}
COPYING = {"_to_copy": None, "copy_": 2, "_foreach_copy_": 2}  # the position of non_blocking, unless by keyword only
INDEXING = {"index", "index_put", "index_put_", "_unsafe_index", "_unsafe_index_put"}


def reason(func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> str:
    """The operation by name if the host waits for it, with what it is that takes time; else empty."""
    name = func.overloadpacket.__name__
    if name in READING:
        return name
    if name in INDEXING:
        indices = [index for index in args[1] if index is not None]
        if any(index.dtype in (torch.bool, torch.uint8) for index in indices):
            return f"{name} by a mask"
        return f"{name} by indices of the CPU" if any(index.device.type == "cpu" for index in indices) else ""
    if name not in COPYING or _is_free(args, kwargs, COPYING[name]):
        return ""
    devices = {tensor.device.type for tensor in tree_leaves((args, kwargs)) if isinstance(tensor, Tensor)}
    if (device := kwargs.get("device")) is not None:
        devices.add(torch.device(device).type)
    return f"{name} between CPU and GPU" if len(devices) > 1 else ""


def _is_free(args: Sequence[Any], kwargs: dict[str, Any], position: int | None) -> bool:
    """Whether a copy is non_blocking."""
    given = position is not None and len(args) > position and args[position]
    return bool(given or kwargs.get("non_blocking"))
