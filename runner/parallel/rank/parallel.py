"""The plain case, one rank on one device: every hook that a strategy may override, doing nothing."""

import math
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Tensor, nn
from torch.nn.utils import clip_grad_norm_
from torch.optim import Optimizer

from manyheads.runner.parallel.rank.passes import ForwardBackward, ForwardResult, RunState
from manyheads.runner.parallel.rank.structure import call
from manyheads.runner.parallel.rank.tensor_layout import TensorLayout
from manyheads.runner.run.checkpoint_places import StateDict
from manyheads.runner.run.heartbeat import Pending

if TYPE_CHECKING:
    from manyheads.runner.data.rank.batches import Batch

Reduction = Literal["sum", "max"]
GradientKind = Literal["complex", "sparse"]  # those that not everything can compute with


class Parallel:
    """One rank's view of all ranks. The loop calls these hooks whatever the backend; all ranks call them in step.

    ``device_type``: "cpu", "cuda:0" and so on; "cuda" is that of number ``local_rank``. The attributes are what a
    strategy sets, in its class or constructor.

    ``records``: whether this rank writes the run's files. ``total_ranks``: the number of ranks in the run, more than
    ``world_size`` if it has replicas that may come and go. ``devices``: those that this rank computes on. ``layout``:
    which part of the model's and the optimizer's tensors each rank has.

    ``data_rank``, ``data_size``: this rank's share of each batch, the same for ranks that work on it together, and the
    number of shares, over which gradients are averaged. ``counts_samples``: whether this rank's losses and statistics
    count; true for exactly one of the ranks with the same share.

    ``evaluates_together``: whether ``evaluate`` communicates, so that every rank must call it equally often, with a
    sample that does not count if it has none left. ``backward_steps``: whether the backward pass already changes
    weights, which rules out throw-away passes. ``shares_model``: whether only the first rank gathers the whole model.
    ``is_replica``: whether every rank has the same weights and exchanged gradients, to the bit. ``gradient_kinds``:
    which unusual ones it can exchange. ``keeps_rows``: whether every rank keeps the tables' last rows, in case the one
    that writes them rejoins.
    """

    gradient_kinds: tuple[GradientKind, ...] = ("complex", "sparse")
    counts_samples = True
    evaluates_together = False
    backward_steps = False
    shares_model = False
    is_replica = False
    keeps_rows = False

    def __init__(self, *, rank: int, local_rank: int, world_size: int, device_type: str):
        self.rank, self.local_rank, self.world_size = rank, local_rank, world_size
        self.data_rank, self.data_size, self.total_ranks, self.records = rank, world_size, world_size, rank == 0
        self.device = torch.device(f"cuda:{local_rank}" if device_type == "cuda" else device_type)
        self.devices, self.layout = [self.device], TensorLayout()
        self.beat = bool
        self._nothing = nullcontext()

    def join(self) -> None:
        """Connect to the other ranks."""
        if self.device.type == "cuda":
            torch.cuda.set_device(self.device)

    def leave(self) -> None:
        """Disconnect from the other ranks; also called after failures."""

    @property
    def summary(self) -> str:
        """The description of this strategy in the run's header."""
        return "one process"

    # -- ranks that come and go ----------------------------------------------------------------------

    def catch_up(self, course: RunState, *, step: int) -> StateDict | None:
        """The state of the other ranks if they are ahead of update ``step``; called before the first update."""
        return None

    def finish(self, course: RunState) -> bool:
        """Called when training is complete; returns whether this rank concludes the run."""
        return True

    # -- assembly, in this order ---------------------------------------------------------------------

    example: Callable[[], "Batch"]  # creates a micro-batch of this rank, for strategies that split the model
    beat: Callable[[], object]  # reports progress, while much is computed before the first update

    def place(self, model: nn.Module) -> nn.Module:
        """Move the model to the device, with any change that must happen before the optimizer is built."""
        return model.to(self.device)

    def wrap_optimizer(self, optimizer: Optimizer, model: nn.Module) -> Optimizer:
        """The optimizer that the loop will use. ``optimizer``: over the parameters of ``model``, which is placed."""
        return optimizer

    def wrap_model(self, model: nn.Module) -> nn.Module:
        """The module that the loop will call. ``model``: placed, and converted by the precision."""
        return model

    def prime(self, step: Callable[[], None]) -> None:
        """Run throw-away steps so that what a wrapper learns from its first steps reaches its final state."""

    def restored(self, model: nn.Module, optimizer: Optimizer) -> None:
        """Make the ranks agree after each of them has loaded a checkpoint."""

    def grad_scaler(self, **options: Any) -> torch.amp.GradScaler:
        """The fp16 gradient scaler that works with this strategy."""
        return torch.amp.GradScaler(self.device.type, **options)

    # -- one update ----------------------------------------------------------------------------------

    def compute_gradients(self, batches: "list[Batch]", step: ForwardBackward) -> list[ForwardResult]:
        """Forward and backward of an update's micro-batches, after which each rank has its gradients, exchanged.

        A strategy that orders forward and backward passes itself, such as a pipeline, builds on ``step.objective``.
        """
        return [step(batch, last=batch is batches[-1]) for batch in batches]

    def accumulating(self, model: nn.Module, *, last: bool) -> AbstractContextManager:
        """Context for one micro-batch; gradients need to be exchanged only in the last one."""
        return self._nothing

    def synchronize(self, optimizer: Optimizer) -> None:
        """Finish the exchange of gradients after the last backward pass."""

    def gradient_norm(self, parameters: list[nn.Parameter], *, limit: float) -> Tensor:
        """The norm of the whole model's gradients, (), which are scaled down to ``limit`` if it is larger.

        ``parameters``: those of this rank; ``limit``: inf for no clipping.
        """
        if math.isfinite(limit):
            return clip_grad_norm_(parameters, limit)
        return total_norm([p.grad for p in parameters if p.grad is not None])

    def stepping(self, optimizer: Optimizer) -> AbstractContextManager:
        """Context for the optimizer's step."""
        return self._nothing

    # -- evaluation, metrics, checkpoints ------------------------------------------------------------

    def unwrap(self, model: nn.Module) -> nn.Module:
        """The user's own model, whose state_dict has the user's own names."""
        return model

    def evaluate(self, model: nn.Module, inputs: Any) -> Any:
        """The outputs for one batch, without gradients; arbitrary on ranks where ``counts_samples`` is false.

        ``model``: the result of ``wrap_model``, in evaluation mode; it must not communicate unless
        ``evaluates_together``.
        """
        return call(self.unwrap(model), inputs)

    def own_state(self) -> StateDict | None:
        """State of this rank besides model and optimizer that a checkpoint must store, as plain data; None if none."""
        return None

    def load_own_state(self, state: StateDict) -> None:
        """Restore the result of ``own_state``, on the same number of ranks; empty if another strategy wrote it."""

    def unlike(self) -> dict[int, bool]:
        """Ranks, including those that hold the most and the least; True for one that computes what no other does."""
        return {0: True}

    # -- talking to the other ranks ------------------------------------------------------------------

    def share_buffers(self, model: nn.Module) -> None:
        """Give every rank the buffers of rank 0 (BatchNorm statistics), as the checkpoint will store them."""

    def reduce(self, values: Tensor, operation: Reduction = "sum") -> Tensor:
        """Combine ``values`` of all ranks in place, on every rank."""
        return values

    def collectives(self) -> int:
        """The number of collective operations that this rank has reached since it joined; 0 if not counted."""
        return 0

    def pending(self) -> Pending | None:
        """The collective operation at which this rank waits; None if it waits at none, or that is not recorded."""
        return None

    def gather(self, value: Any) -> list[Any]:
        """Gather a small picklable value from each rank, in rank order, on every rank."""
        return [value]


def total_norm(gradients: list[Tensor]) -> Tensor:
    """The norm of all these tensors, (), as torch.nn.utils.get_total_norm, without sorting by device and dtype."""
    return torch.linalg.vector_norm(torch.stack(torch._foreach_norm(gradients))) if gradients else torch.tensor(0.0)
