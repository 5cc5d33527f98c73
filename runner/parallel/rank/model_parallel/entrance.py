"""Where a tensor enters a tensor-parallel group: once for all layers that take it, so that its gradient is summed once.

Query, key and value are layers of the same input. Each rank adds up what they contribute to its gradient, before the
ranks do.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from manyheads.runner.parallel.rank.model_parallel.tensor_layers import EnterGroup, lowered


class Entrance:
    """The entrance of a module's column-parallel layers. What has entered is known until the module's call ends.

    Under torch.compile each layer enters by itself: a graph that is recomputed allows no side effects.
    """

    def __init__(self, parent: nn.Module, group: Any):
        self._group = group
        self._entered: list[tuple[Tensor, tuple[Any, ...], Any]] | None = None
        parent.register_forward_pre_hook(self._open)
        parent.register_forward_hook(self._close, always_call=True)

    def __call__(self, given: Tensor) -> Tensor:
        """The tensor as this rank's part of a layer receives it, in the dtype in which the layer computes."""
        return self.once(given, lambda cast: EnterGroup.apply(cast, self._group))

    def once(self, given: Tensor, enter: Callable[[Tensor], Any]) -> Any:
        """What ``enter`` returns for the tensor in the dtype in which layers compute; called once for all of them."""
        cast = lowered(given)
        if torch.compiler.is_compiling() or self._entered is None:
            return enter(cast)
        state = given._version, cast.dtype, torch.is_grad_enabled()
        for earlier, then, entered in self._entered:
            if earlier is given and then == state:
                return entered
        entered = enter(cast)
        self._entered.append((given, state, entered))
        return entered

    def _open(self, *_: Any) -> None:
        if not torch.compiler.is_compiling():
            self._entered = []

    def _close(self, *_: Any) -> None:
        if not torch.compiler.is_compiling():
            self._entered = None
