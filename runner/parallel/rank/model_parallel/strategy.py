"""The base of model-parallel strategies: a mesh of ranks, and what follows from a rank's coordinates in it."""

from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.optim import Optimizer

from manyheads.runner.parallel.mesh_layout import Layout
from manyheads.runner.parallel.rank.model_parallel.own_parts import (
    Gradients,
    OwnParts,
    local,
    refuse_if_needs_whole_weights,
)
from manyheads.runner.parallel.rank.model_parallel.parallel_state import WholeState
from manyheads.runner.parallel.rank.model_parallel.sharding import Sharding, set_reduces
from manyheads.runner.parallel.rank.model_parallel.splitting import Shared, Splitting
from manyheads.runner.parallel.rank.model_parallel.staging import Piped, Staging
from manyheads.runner.parallel.rank.passes import ForwardBackward, ForwardResult
from manyheads.runner.parallel.rank.process_group import ProcessGroup, SharedScaler
from manyheads.runner.run.checkpoint_places import StateDict

if TYPE_CHECKING:
    from manyheads.runner.data.rank.batches import Batch


class ModelParallel(ProcessGroup):
    """A rank in a mesh of the given ``layout``. Only the dimensions ``replicate`` and ``shard`` divide the data.

    ``sharding``: how weights are sharded, if they are; ``splitting``: how layers are split, if they are; ``staging``:
    how the model is cut into stages, if it is.
    """

    gradient_kinds = ()
    evaluates_together = True
    shares_model = True

    def __init__(
        self,
        *,
        layout: Layout,
        sharding: Sharding | None = None,
        splitting: Splitting | None = None,
        staging: Staging | None = None,
        **place: Any,
    ):
        super().__init__(**place)
        self.layout, self.sharding, self.splitting, self.staging = layout, sharding, splitting, staging
        self.place_in = layout.place_of(self.rank)
        self.mesh: DeviceMesh | None = None
        self.data_group: Any = None
        self.shared = Shared({})
        self.pipe: Piped | None = None
        self._reduces = True

    @property
    def summary(self) -> str:
        return f"{self.ranks} over {self.backend}: {self.layout}"

    def join(self) -> None:
        super().join()
        self.mesh = mesh = init_device_mesh(self.device.type, tuple(self.layout), mesh_dim_names=self.layout._fields)
        if self.data_size > 1:
            self.data_group = mesh["replicate", "shard"]._flatten("data").get_group()

    # -- the data ------------------------------------------------------------------------------------

    @property
    def data_rank(self) -> int:
        return self.layout.data_rank(self.place_in)

    @property
    def data_size(self) -> int:
        return self.layout.data_size

    @property
    def counts_samples(self) -> bool:
        return self.place_in.tensor == 0 and self.place_in.pipeline == self.layout.pipeline - 1

    # -- for WholeState ------------------------------------------------------------------------------

    @property
    def tensor_group(self) -> Any:
        return self.mesh["tensor"].get_group() if self.mesh is not None and self.layout.tensor > 1 else None

    @property
    def tensor_rank(self) -> int:
        return self.place_in.tensor

    @property
    def tensor_size(self) -> int:
        return self.layout.tensor

    @property
    def is_staged(self) -> bool:
        return self.layout.pipeline > 1

    @property
    def is_speaker(self) -> bool:
        return self.place_in._replace(pipeline=0) == Layout(0, 0, 0, 0)

    # -- assembly ------------------------------------------------------------------------------------

    def place(self, model: nn.Module) -> nn.Module:
        self.state = WholeState(model, self)
        if self.mesh is not None:
            self.divide(model, self.mesh)
        self.state.follow(model, self.shared.cuts)
        return super().place(model)

    def divide(self, model: nn.Module, mesh: DeviceMesh) -> None:
        """Reduce the model to this rank's part, in place."""
        is_piped = self.staging is not None and self.layout.pipeline > 1
        planned = self.staging.plan(model, self) if self.staging is not None and is_piped else None
        if self.splitting is not None and self.layout.tensor > 1:
            self.shared = self.splitting.apply(model, self)
        if planned is not None:
            self.pipe = planned.cut(model, mesh["pipeline"].get_group())
        if self.sharding is not None:
            over = mesh["replicate", "shard"] if self.layout.replicate > 1 else mesh["shard"]
            holds = None if self.pipe is None else self.pipe.holds_alone
            self.sharding.apply(model, over, self.state.names, holds=holds)

    def wrap_optimizer(self, optimizer: Optimizer, model: nn.Module) -> Optimizer:
        if self.mesh is not None:
            refuse_if_needs_whole_weights(optimizer)
            whose = {parameter: name for name, parameter in model.named_parameters()}
            self.state.group([[whose[weight] for weight in group["params"]] for group in optimizer.param_groups])
            self.gradients = Gradients(OwnParts(optimizer), whose, self)
        return optimizer

    def grad_scaler(self, **options: Any) -> torch.amp.GradScaler:
        return SharedScaler(self.device.type, lambda found: self.reduce(found, "max"), **options)

    # -- one update ----------------------------------------------------------------------------------

    def compute_gradients(self, batches: "list[Batch]", step: ForwardBackward) -> list[ForwardResult]:
        if self.pipe is None:
            return super().compute_gradients(batches, step)
        passes = self.pipe.compute_gradients(batches, step)
        self.gradients.exchange()
        return passes

    def accumulating(self, model: nn.Module, *, last: bool) -> AbstractContextManager:
        if last != self._reduces:
            set_reduces(model, reduces=last)
            self._reduces = last
        return self._nothing

    def synchronize(self, optimizer: Optimizer) -> None:
        self.gradients.exchange()

    def gradient_norm(self, parameters: list[nn.Parameter], *, limit: float) -> Tensor:
        return self.gradients.norm(parameters, limit=limit)

    # -- evaluation ----------------------------------------------------------------------------------

    def evaluate(self, model: nn.Module, inputs: Any) -> Any:
        return super().evaluate(model, inputs) if self.pipe is None else self.pipe.evaluate(inputs)

    def share_buffers(self, model: nn.Module) -> None:
        if self.pipe is None:
            super().share_buffers(model)
        elif self.data_group is not None:  # each stage has its own
            first = dist.get_process_group_ranks(self.data_group)[0]
            for buffer in model.buffers():
                dist.broadcast(buffer, src=first, group=self.data_group)

    # -- state of the whole model --------------------------------------------------------------------

    def gather_tensors(self, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
        return self.state.gather(tensors)

    def split_tensors(self, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
        return self.state.split(tensors)

    def own_part(self, tensor: Tensor) -> Tensor:
        return local(tensor)

    def gather_optimizer(self, state: StateDict) -> StateDict:
        return self.state.gather_optimizer(state)

    def split_optimizer(self, state: StateDict) -> StateDict:
        return self.state.split_optimizer(state)

    def share_tensors(self, tensors: dict[str, Tensor]) -> StateDict:
        return self.state.share(tensors)

    def share_optimizer(self, optimizer: Optimizer) -> StateDict:
        return self.state.share_optimizer(optimizer.state_dict())

    # -- what this rank holds ------------------------------------------------------------------------

    def model_tensors(self, model: nn.Module) -> list[Tensor]:
        return [local(tensor) for tensor in super().model_tensors(model)]

    def gradient_tensors(self, model: nn.Module, optimizer: Optimizer) -> list[Tensor]:
        return [local(tensor) for tensor in super().gradient_tensors(model, optimizer)]

    def unlike(self, optimizer: Optimizer) -> dict[int, bool]:
        stages = [0] if self.pipe is None else self.pipe.unlike()
        shards = sorted({0, self.layout.shard - 1})  # the last shard may have fewer rows
        return {self.layout.rank_of(Layout(stage, 0, shard, 0)): not shard for stage in stages for shard in shards}
