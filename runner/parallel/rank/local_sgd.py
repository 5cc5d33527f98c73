"""parallel=local_sgd: ranks that train independently, and average their weights from time to time.

Source: Lin et al. 2018, post-local SGD (https://arxiv.org/abs/1808.07217). Torch's own optimizer for it averages only
the weights, so that a resumed run would differ; here the optimizer's state is averaged too when a checkpoint is saved.
"""

import math
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from manyheads.runner.checkpoint.rank.dtypes import as_real
from manyheads.runner.parallel.rank.flat_buckets import exchange
from manyheads.runner.parallel.rank.process_group import Replicas, SharedScaler
from manyheads.runner.parallel.rank.tensor_layout import TensorLayout
from manyheads.runner.run.checkpoint_places import StateDict


class LocalSGD(Replicas):
    """Gradients are averaged for ``start`` updates; from then on weights are, after every ``period`` updates.

    Weights and the optimizer's state are averaged before each evaluation and checkpoint too.
    """

    is_replica = False
    _model: nn.Module  # set with the optimizer

    def __init__(self, *, period: int, start: int, **options: Any):
        super().__init__(**options)
        self.period, self.start = period, start
        self.updates = 0
        self._agrees = True
        self._optimizer: Optimizer | None = None
        self._is_primed = False
        self.layout = AgreedWeights(self._agree)

    def wrap_optimizer(self, optimizer: Optimizer, model: nn.Module) -> Optimizer:
        self._optimizer, self._model = optimizer, model
        return optimizer

    def grad_scaler(self, **options: Any) -> torch.amp.GradScaler:
        return SharedScaler(self.device.type, lambda found_inf: self.reduce(found_inf, "max"), **options)

    def accumulating(self, model: nn.Module, *, last: bool) -> AbstractContextManager:
        together = self.updates < self.start or not self._is_primed
        return super().accumulating(model, last=last and together)

    def prime(self, step: Any) -> None:
        super().prime(step)
        self._is_primed = True

    def gradient_norm(self, parameters: list[nn.Parameter], *, limit: float) -> Tensor:
        """The largest norm of any rank; each rank clips by its own."""
        norm = super().gradient_norm(parameters, limit=limit)
        return self.reduce(torch.nan_to_num(norm.detach().double(), nan=math.inf).reshape(1), "max")[0]

    @contextmanager
    def stepping(self, optimizer: Optimizer) -> Iterator[None]:
        yield
        self.updates += 1
        if self.updates > self.start:
            self._agrees = False
            if (self.updates - self.start) % self.period == 0:
                self._average(self._weights())

    # -- where the ranks must agree ------------------------------------------------------------------

    def share_buffers(self, model: nn.Module) -> None:
        self._agree()
        super().share_buffers(model)

    def _agree(self) -> None:
        if self._agrees or self._optimizer is None:
            return
        state = [value for weight_state in self._optimizer.state.values() for value in weight_state.values()]
        tensors = [as_real(value) for value in state if isinstance(value, Tensor) and value.ndim]
        moments = [value for value in tensors if value.is_floating_point()]
        self._average([*self._weights(), *moments])
        self._agrees = True

    def _weights(self) -> list[Tensor]:
        return [parameter.data for parameter in self._model.parameters() if parameter.requires_grad]

    def _average(self, tensors: list[Tensor]) -> None:
        exchange(tensors, lambda flat: self.reduce(flat).div_(self.world_size))

    # -- progress, which decides when the next averaging is due -----------------------------------------

    def own_state(self) -> StateDict:
        return {"updates": self.updates}

    def load_own_state(self, state: StateDict) -> None:
        self.updates = state.get("updates", 0)


class AgreedWeights(TensorLayout):
    """Weights that each rank has trained by itself. ``agree``: averages them in place, before they are gathered."""

    def __init__(self, agree: Callable[[], None]):
        self._agree = agree

    def gather(self, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
        self._agree()
        return tensors

    def share(self, tensors: dict[str, Tensor]) -> StateDict:
        return self.gather(tensors)
