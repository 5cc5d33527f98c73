"""The collective operations of an update, recorded once, so that they can be repeated with nothing else."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.distributed.tensor import DTensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map_only

from manyheads.runner.parallel.rank.parallel import Parallel

NAMESPACES = ("c10d", "_c10d_functional")
COLLECTIVES = ("allreduce", "allgather", "reducescatter", "broadcast", "alltoall")  # without underscores
BETWEEN_TWO = ("send", "recv")


class Exchanges(TorchDispatchMode):
    """Records the collectives that torch.distributed runs in the context.

    ``is_complete``: whether ``again`` repeats all of them; messages between two ranks are not repeated.
    """

    def __init__(self) -> None:
        super().__init__()
        self._calls: list[tuple[Callable[..., Any], Any]] = []
        self.is_complete = True

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if DTensor in types:  # dispatched again with its local tensors
            return NotImplemented
        if func.namespace in NAMESPACES:
            name = str(func).split(".")[1].replace("_", "")
            if name.startswith(COLLECTIVES):
                self._calls.append((func, tree_map_only(Tensor, torch.zeros_like, (args, kwargs or {}))))
            self.is_complete &= not name.startswith(BETWEEN_TWO)
        return func(*args, **(kwargs or {}))

    def again(self) -> None:
        """Repeat them in their order, on tensors of zeros; waits for the end of each only after starting all."""
        for wait in [_waiting(func(*args, **keywords)) for func, (args, keywords) in self._calls]:
            wait()

    def __bool__(self) -> bool:
        return bool(self._calls)


def _waiting(result: Any) -> Callable[[], Any]:
    """What waits for a collective that returned this."""
    if isinstance(result, Tensor):  # of a functional one
        return lambda: torch.ops._c10d_functional.wait_tensor(result)
    work = result[-1] if isinstance(result, (tuple, list)) else result
    return lambda: torch.distributed.Work.unbox(work).wait()


def summed(parallel: Parallel, size: int) -> Callable[[], Any]:
    """The strategy's own sum over all ranks of so many bytes, for one that communicates in its own way."""
    tensor = torch.zeros(max(1, size // 4), device=parallel.device)
    return lambda: parallel.reduce(tensor)
