"""The plain case, one rank on one device: every hook that a strategy may need, doing nothing."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

Reduction = Literal["sum", "max"]


class Parallel:
    """One rank's view of all ranks. The loop calls these hooks and knows no backend.

    ``device_type``: "cpu" or "cuda".
    """

    def __init__(self, *, rank: int, local_rank: int, world_size: int, device_type: str):
        self.rank, self.local_rank, self.world_size = rank, local_rank, world_size
        self.device = torch.device(f"cuda:{local_rank}" if device_type == "cuda" else device_type)
        self._nothing = nullcontext()

    def join(self) -> None:
        """Meet the other ranks."""
        if self.device.type == "cuda":
            torch.cuda.set_device(self.device)

    def leave(self) -> None:
        """Part from the other ranks; called after failures too."""

    @property
    def summary(self) -> str:
        """What the run's header says of this strategy."""
        return "one process"

    @property
    def ranks(self) -> str:
        """Their number, in words."""
        return "1 rank" if self.world_size == 1 else f"{self.world_size} ranks"

    # -- assembly, in this order ---------------------------------------------------------------------

    def place(self, model: nn.Module) -> nn.Module:
        """Bring the model to the device, with any change that must come before the optimizer."""
        return model.to(self.device)

    def wrap_optimizer(self, optimizer: Optimizer, model: nn.Module) -> Optimizer:
        return optimizer

    def wrap_model(self, model: nn.Module) -> nn.Module:
        return model

    def prime(self, step: Callable[[], None]) -> None:
        """Bring what a wrapper learns from its first steps into its final state, by throw-away steps."""

    def restored(self, model: nn.Module, optimizer: Optimizer) -> None:
        """Make the ranks agree after each has loaded a checkpoint."""

    def grad_scaler(self, **options: Any) -> torch.amp.GradScaler:
        """The fp16 gradient scaler that goes with this strategy."""
        return torch.amp.GradScaler(self.device.type, **options)

    # -- one update ----------------------------------------------------------------------------------

    def accumulating(self, model: nn.Module, *, last: bool) -> AbstractContextManager:
        """Around one micro-batch; gradients need only be exchanged in the last one."""
        return self._nothing

    def synchronize(self, optimizer: Optimizer) -> None:
        """Finish the exchange of gradients after the last backward."""

    def stepping(self, optimizer: Optimizer) -> AbstractContextManager:
        """Around the optimizer's step."""
        return self._nothing

    # -- evaluation, metrics, checkpoints ------------------------------------------------------------

    def unwrap(self, model: nn.Module) -> nn.Module:
        """The user's own model, whose state_dict has the user's own names."""
        return model

    def evaluated(self, model: nn.Module) -> nn.Module:
        """What evaluation calls: it must not communicate, since ranks may have different numbers of samples."""
        return self.unwrap(model)

    def share_buffers(self, model: nn.Module) -> None:
        """Give every rank the buffers of rank 0 (BatchNorm statistics), as the checkpoint will hold them."""

    def reduce(self, values: Tensor, operation: Reduction = "sum") -> Tensor:
        """Combine ``values`` of all ranks in place, on every rank."""
        return values

    def devices(self) -> list[torch.device]:
        """Those that this rank computes on."""
        return [self.device]

    def gather(self, value: Any) -> list[Any]:
        """A small picklable value of each rank, in rank order, on every rank."""
        return [value]
