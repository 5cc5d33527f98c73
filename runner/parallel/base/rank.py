"""The plain case, one rank on one device: every hook that a strategy may need, doing nothing."""

import math
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Tensor, nn
from torch.nn.utils import clip_grad_norm_
from torch.optim import Optimizer

from manyheads.runner.parallel.rank.passes import Course, MicroSteps, Passed
from manyheads.runner.parallel.rank.structure import call

if TYPE_CHECKING:
    from manyheads.runner.data.rank.batches import Batch

Reduction = Literal["sum", "max"]


class Parallel:
    """One rank's view of all ranks. The loop calls these hooks and knows no backend; all ranks call them in step.

    ``device_type``: "cpu" or "cuda". ``evaluates_together``: whether ``evaluate`` communicates, so that each rank must
    call it equally often, for a sample that does not count where it has none. ``backward_steps``: whether the backward
    pass already changes weights, so that there can be no throw-away one. ``shares_model``: whether no rank but the
    first is given the whole by ``gather_tensors``.
    """

    evaluates_together = False
    backward_steps = False
    shares_model = False

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
    def name(self) -> str:
        """The option's, which its module has too."""
        return type(self).__module__.split(".")[-2]

    @property
    def summary(self) -> str:
        """What the run's header says of this strategy."""
        return "one process"

    @property
    def ranks(self) -> str:
        """Their number, in words."""
        return "1 rank" if self.world_size == 1 else f"{self.world_size} ranks"

    @property
    def records(self) -> bool:
        """Whether this rank writes what the run leaves."""
        return self.rank == 0

    # -- ranks that come and go ----------------------------------------------------------------------

    keeps_rows = False  # whether a rank keeps the tables' last rows, for one that writes them and was away

    def catch_up(self, course: Course, *, step: int) -> dict[str, Any] | None:
        """Where the other ranks are by now, if they are further than ``step`` updates; before the first update."""
        return None

    def finish(self, course: Course) -> bool:
        """Training is complete; returns whether this rank concludes the run."""
        return True

    # -- the data ------------------------------------------------------------------------------------

    @property
    def data_rank(self) -> int:
        """Which share of each batch this rank takes, counted from 0; the same for ranks that work on it together."""
        return self.rank

    @property
    def data_size(self) -> int:
        """Into how many shares a batch is cut; gradients are averaged over them."""
        return self.world_size

    @property
    def counts_samples(self) -> bool:
        """Whether this rank's losses and statistics count: those of exactly one of the ranks that share their data."""
        return True

    # -- assembly, in this order ---------------------------------------------------------------------

    example: Callable[[], "Batch"]  # makes a micro-batch of this rank's, for who must see one to take a model apart

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

    def compute_gradients(self, batches: "list[Batch]", step: MicroSteps) -> list[Passed]:
        """Forward and backward of an update's micro-batches, after which each rank has its gradients, exchanged.

        A strategy that orders forward and backward passes itself, as a pipeline does, builds on ``step.objective``.
        """
        return [step(batch, last=batch is batches[-1]) for batch in batches]

    def accumulating(self, model: nn.Module, *, last: bool) -> AbstractContextManager:
        """Around one micro-batch; gradients need only be exchanged in the last one."""
        return self._nothing

    def synchronize(self, optimizer: Optimizer) -> None:
        """Finish the exchange of gradients after the last backward."""

    def gradient_norm(self, parameters: list[nn.Parameter], *, limit: float) -> Tensor:
        """The norm over the gradients of the whole model, (); they are scaled down to ``limit`` if it is more.

        ``parameters``: those of this rank; ``limit``: inf for none.
        """
        if math.isfinite(limit):
            return clip_grad_norm_(parameters, limit)
        return total_norm([p.grad for p in parameters if p.grad is not None])

    def stepping(self, optimizer: Optimizer) -> AbstractContextManager:
        """Around the optimizer's step."""
        return self._nothing

    # -- evaluation, metrics, checkpoints ------------------------------------------------------------

    def unwrap(self, model: nn.Module) -> nn.Module:
        """The user's own model, whose state_dict has the user's own names."""
        return model

    def evaluated(self, model: nn.Module) -> nn.Module:
        """What evaluation calls; it must not communicate unless ``evaluates_together``."""
        return self.unwrap(model)

    def evaluate(self, model: nn.Module, inputs: Any) -> Any:
        """Outputs for one batch, without gradients; anything on ranks where ``counts_samples`` is false.

        ``model``: what ``evaluated`` gave, in evaluation mode.
        """
        return call(model, inputs)

    # -- state of the whole model, for checkpoints, digests and comparisons --------------------------

    def gather_tensors(self, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
        """The whole model's tensors from each rank's part of each, by the user's own names; all ranks call it.

        Complete on rank 0; ranks that share a model need not have any elsewhere. Tensors are weights, or gradients
        under their weights' names.
        """
        return tensors

    def split_tensors(self, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
        """This rank's part of the whole model's tensors, which may be Lazy; the inverse of ``gather_tensors``."""
        return tensors

    def own_part(self, tensor: Tensor) -> Tensor:
        """What this rank holds of a weight of its model, as a plain tensor in the same memory."""
        return tensor

    def gather_optimizer(self, state: dict[str, Any]) -> dict[str, Any]:
        """The state_dict of an optimizer of the whole model, from that of each rank's; complete on rank 0."""
        return state

    def split_optimizer(self, state: dict[str, Any]) -> dict[str, Any]:
        """This rank's part of a whole optimizer's state_dict; the inverse of ``gather_optimizer``."""
        return state

    def share_tensors(self, tensors: dict[str, Tensor]) -> dict[str, Any]:
        """What this rank has of the whole model's tensors, each as it is where that is all of it, else as a Share.

        All ranks call it, and between them have all; what ``gather_tensors`` puts together.
        """
        return tensors

    def share_optimizer(self, optimizer: Optimizer) -> dict[str, Any]:
        """The same of the state_dict of an optimizer of the whole model."""
        return optimizer.state_dict()

    has_own_state: bool = False  # whether a checkpoint must hold the ``own_state`` of each rank

    def own_state(self) -> dict[str, Any]:
        """What this rank alone has besides model and optimizer, as plain data, in a checkpoint."""
        return {}

    def load_own_state(self, state: dict[str, Any]) -> None:
        """Bring back what ``own_state`` gave, on as many ranks; of another strategy it may be empty."""

    # -- what this rank holds ------------------------------------------------------------------------

    def model_tensors(self, model: nn.Module) -> list[Tensor]:
        """The parameters that lie in this rank's memory between two updates."""
        return list(model.parameters())

    def optimizer_tensors(self, optimizer: Optimizer) -> list[Tensor]:
        """The optimizer's state that lies in this rank's memory."""
        return [value for own in optimizer.state.values() for value in own.values() if isinstance(value, Tensor)]

    def gradient_tensors(self, model: nn.Module, optimizer: Optimizer) -> list[Tensor]:
        """The gradients that lie in this rank's memory once they are exchanged."""
        owned = [p for group in optimizer.param_groups for p in group["params"]]
        return [p.grad for p in dict.fromkeys([*model.parameters(), *owned]) if p.grad is not None]

    def unlike(self, optimizer: Optimizer) -> dict[int, bool]:
        """Ranks among which are those that hold the most and the least, and whether one computes what no other does."""
        return {0: True}

    # -- talking to the other ranks ------------------------------------------------------------------

    def share_buffers(self, model: nn.Module) -> None:
        """Give every rank the buffers of rank 0 (BatchNorm statistics), as the checkpoint will hold them."""

    def reduce(self, values: Tensor, operation: Reduction = "sum") -> Tensor:
        """Combine ``values`` of all ranks in place, on every rank."""
        return values

    def collectives(self) -> int:
        """How many collective operations of all ranks this one has come to since it joined; 0 where nobody counts."""
        return 0

    def devices(self) -> list[torch.device]:
        """Those that this rank computes on."""
        return [self.device]

    def gather(self, value: Any) -> list[Any]:
        """A small picklable value of each rank, in rank order, on every rank."""
        return [value]


def total_norm(gradients: list[Tensor]) -> Tensor:
    """The norm over all of them, (); as torch.nn.utils.get_total_norm, without sorting them by device and dtype."""
    return torch.linalg.vector_norm(torch.stack(torch._foreach_norm(gradients))) if gradients else torch.tensor(0.0)
