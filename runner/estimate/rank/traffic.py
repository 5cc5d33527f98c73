"""Counts this rank's collectives where torch passes them to their backend."""

from collections.abc import Callable
from typing import Any

from torch import Tensor
from torch.distributed.tensor import DTensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from manyheads.runner.estimate.findings import Traffic

KINDS = {  # by prefix of the operation's name, without underscores
    "allreduce": "all-reduce",
    "allgather": "all-gather",
    "reducescatter": "reduce-scatter",
    "broadcast": "broadcast",
    "send": "send",
    "recv": "receive",
    "alltoall": "all-to-all",
}


class CountedTraffic(TorchDispatchMode):
    """``found``: the counts by kind. A call counts the bytes of the complete tensor gathered, reduced or sent."""

    def __init__(self) -> None:
        super().__init__()
        self.found: dict[str, Traffic] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if DTensor in types:  # dispatched again with its local tensors
            return NotImplemented
        if func.namespace in ("c10d", "_c10d_functional"):
            self._count(func, args)
        return func(*args, **(kwargs or {}))

    def _count(self, func: Callable[..., Any], args: Any) -> None:
        name = str(func).split(".")[1].replace("_", "")
        kind = next((kind for begin, kind in KINDS.items() if name.startswith(begin)), None)
        if kind is not None:
            before = self.found.get(kind, Traffic(0, 0))
            largest = max(_bytes(given) for given in args[:2])
            self.found[kind] = Traffic(before.calls + 1, before.bytes + largest)


def _bytes(given: Any) -> int:
    tensors = [leaf for leaf in tree_leaves(given) if isinstance(leaf, Tensor)]
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)
