"""The plain case, one rank on one device: every hook that a strategy may override, doing nothing."""

import math
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Tensor, nn
from torch.nn.utils import clip_grad_norm_
from torch.optim import Optimizer

from manyheads.runner.parallel.rank.passes import ForwardBackward, ForwardResult, RunState
from manyheads.runner.parallel.rank.structure import call
from manyheads.runner.run.checkpoint_places import StateDict
from manyheads.runner.run.heartbeat import Pending

if TYPE_CHECKING:
    from manyheads.runner.data.rank.batches import Batch

Reduction = Literal["sum", "max"]
GradientKind = Literal["complex", "sparse"]  # those that not everything can compute with


class Parallel:
    """One rank's view of all ranks. The loop calls these hooks whatever the backend; all ranks call them in step.

    ``device_type``: "cpu" or "cuda". ``evaluates_together``: whether ``evaluate`` communicates, so that every rank must
    call it equally often, with a sample that does not count if it has none left. ``backward_steps``: whether the
    backward pass already changes weights, which rules out throw-away passes. ``shares_model``: whether
    ``gather_tensors`` returns the whole model only on the first rank. ``is_replica``: whether every rank has the same
    weights and exchanged gradients, to the bit. ``gradient_kinds``: which unusual ones it can exchange.
    """

    gradient_kinds: tuple[GradientKind, ...] = ("complex", "sparse")
    evaluates_together = False
    backward_steps = False
    shares_model = False
    is_replica = False

    def __init__(self, *, rank: int, local_rank: int, world_size: int, device_type: str):
        self.rank, self.local_rank, self.world_size = rank, local_rank, world_size
        self.device = torch.device(f"cuda:{local_rank}" if device_type == "cuda" else device_type)
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

    @property
    def ranks(self) -> str:
        """The number of ranks, in words."""
        return "1 rank" if self.world_size == 1 else f"{self.world_size} ranks"

    @property
    def records(self) -> bool:
        """Whether this rank writes the run's files."""
        return self.rank == 0

    # -- ranks that come and go ----------------------------------------------------------------------

    keeps_rows = False  # whether every rank keeps the tables' last rows, in case the one that writes them rejoins

    def catch_up(self, course: RunState, *, step: int) -> StateDict | None:
        """The state of the other ranks if they are ahead of update ``step``; called before the first update."""
        return None

    def finish(self, course: RunState) -> bool:
        """Called when training is complete; returns whether this rank concludes the run."""
        return True

    # -- the data ------------------------------------------------------------------------------------

    @property
    def data_rank(self) -> int:
        """The index of this rank's share of each batch; the same for ranks that work on it together."""
        return self.rank

    @property
    def data_size(self) -> int:
        """Into how many shares a batch is divided; gradients are averaged over them."""
        return self.world_size

    @property
    def total_ranks(self) -> int:
        """The number of ranks in the run: more than ``world_size`` if it has replicas that may come and go."""
        return self.world_size

    @property
    def counts_samples(self) -> bool:
        """Whether this rank's losses and statistics count; true for exactly one of the ranks that share their data."""
        return True

    # -- assembly, in this order ---------------------------------------------------------------------

    example: Callable[[], "Batch"]  # creates a micro-batch of this rank, for strategies that split the model

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

    def evaluated(self, model: nn.Module) -> nn.Module:
        """The model that evaluation calls; it must not communicate unless ``evaluates_together``."""
        return self.unwrap(model)

    def evaluate(self, model: nn.Module, inputs: Any) -> Any:
        """The outputs for one batch, without gradients; arbitrary on ranks where ``counts_samples`` is false.

        ``model``: the result of ``evaluated``, in evaluation mode.
        """
        return call(model, inputs)

    # -- state of the whole model, for checkpoints, digests and comparisons --------------------------

    def gather_tensors(self, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
        """The whole model's tensors, gathered from each rank's parts, by the user's own names; all ranks call it.

        Complete on rank 0; ranks that share a model need not return any elsewhere. Tensors are weights, or gradients
        under their weights' names.
        """
        return tensors

    def split_tensors(self, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
        """This rank's part of the whole model's tensors, which may be Lazy; the inverse of ``gather_tensors``."""
        return tensors

    def own_part(self, tensor: Tensor) -> Tensor:
        """This rank's part of a weight of its model, as a plain tensor in the same memory."""
        return tensor

    def gather_optimizer(self, state: StateDict) -> StateDict:
        """The state_dict of an optimizer of the whole model, from each rank's own; complete on rank 0."""
        return state

    def split_optimizer(self, state: StateDict) -> StateDict:
        """This rank's part of a whole optimizer's state_dict; the inverse of ``gather_optimizer``."""
        return state

    def share_tensors(self, tensors: dict[str, Tensor]) -> StateDict:
        """This rank's parts of the whole model's tensors: whole tensors unchanged, parts as a Share.

        All ranks call it; together they return what ``gather_tensors`` gathers.
        """
        return tensors

    def share_optimizer(self, optimizer: Optimizer) -> StateDict:
        """This rank's parts of the state_dict of an optimizer of the whole model, as in ``share_tensors``."""
        return optimizer.state_dict()

    has_own_state: bool = False  # whether a checkpoint must hold the ``own_state`` of each rank

    def own_state(self) -> StateDict:
        """State of this rank besides model and optimizer that a checkpoint must store, as plain data."""
        return {}

    def load_own_state(self, state: StateDict) -> None:
        """Restore the result of ``own_state``, on the same number of ranks; empty if another strategy wrote it."""

    # -- what this rank holds ------------------------------------------------------------------------

    def model_tensors(self, model: nn.Module) -> list[Tensor]:
        """The parameters in this rank's memory between two updates."""
        return list(model.parameters())

    def optimizer_state(self, optimizer: Optimizer) -> Mapping[Tensor, StateDict]:
        """The optimizer's state in this rank's memory, by parameter."""
        return optimizer.state

    def gradient_tensors(self, model: nn.Module, optimizer: Optimizer) -> list[Tensor]:
        """The gradients in this rank's memory once they have been exchanged."""
        owned = [p for group in optimizer.param_groups for p in group["params"]]
        return [p.grad for p in dict.fromkeys([*model.parameters(), *owned]) if p.grad is not None]

    def unlike(self, optimizer: Optimizer) -> dict[int, bool]:
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

    def devices(self) -> list[torch.device]:
        """The devices that this rank computes on."""
        return [self.device]

    def gather(self, value: Any) -> list[Any]:
        """Gather a small picklable value from each rank, in rank order, on every rank."""
        return [value]


def total_norm(gradients: list[Tensor]) -> Tensor:
    """The norm of all these tensors, (), as torch.nn.utils.get_total_norm, without sorting by device and dtype."""
    return torch.linalg.vector_norm(torch.stack(torch._foreach_norm(gradients))) if gradients else torch.tensor(0.0)
