"""The base of model-parallel strategies: a mesh of ranks, and what follows from a rank's coordinates in it."""

from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.optim import Optimizer

from manyheads.runner.parallel.mesh_layout import Layout
from manyheads.runner.parallel.rank.flat_buckets import exchange
from manyheads.runner.parallel.rank.model_parallel.deferred import Deferred
from manyheads.runner.parallel.rank.model_parallel.divided_layout import DividedLayout
from manyheads.runner.parallel.rank.model_parallel.own_parts import (
    Gradients,
    refuse_if_needs_whole_weights,
)
from manyheads.runner.parallel.rank.model_parallel.sharding import Sharding, set_reduces
from manyheads.runner.parallel.rank.model_parallel.splitting import Shared, Splitting
from manyheads.runner.parallel.rank.model_parallel.staging import Piped, Staging
from manyheads.runner.parallel.rank.passes import ForwardBackward, ForwardResult
from manyheads.runner.parallel.rank.process_group import ProcessGroup, SharedScaler
from manyheads.runner.wording import counted

if TYPE_CHECKING:
    from manyheads.runner.data.rank.batches import Batch


class ModelParallel(ProcessGroup):
    """A rank in a mesh of the given ``sizes``. Only the dimensions ``replicate`` and ``shard`` divide the data.

    ``sharding``: how weights are sharded, if they are; ``splitting``: how layers are split, if they are; ``staging``:
    how the model is cut into stages, if it is.

    ``deferred``: the values of the model's tensors on meta, which are computed once it is divided; ``built_whole``: why
    there are none, and each rank has built the complete model.
    """

    gradient_kinds = ()
    evaluates_together = True
    shares_model = True

    def __init__(
        self,
        *,
        sizes: Layout,
        sharding: Sharding | None = None,
        splitting: Splitting | None = None,
        staging: Staging | None = None,
        **position: Any,
    ):
        super().__init__(**position)
        self.sizes, self.sharding, self.splitting, self.staging = sizes, sharding, splitting, staging
        self.place_in = place_in = sizes.place_of(self.rank)
        self.data_rank, self.data_size = sizes.data_rank(place_in), sizes.data_size
        self.counts_samples = place_in.tensor == 0 and place_in.pipeline == sizes.pipeline - 1
        self.speaks = place_in._replace(pipeline=0) == Layout(0, 0, 0, 0)  # for its stage
        self.mesh: DeviceMesh | None = None
        self.data_group: Any = None
        self.shared = Shared({})
        self.pipe: Piped | None = None
        self.deferred: Deferred | None = None
        self.built_whole = ""
        self._reduces = True

    @property
    def summary(self) -> str:
        built = f", each of which built the complete model first: {self.built_whole}" if self.built_whole else ""
        return f"{counted(self.world_size, 'rank')} over {self.backend}: {self.sizes}{built}"

    def join(self) -> None:
        super().join()
        self.mesh = mesh = init_device_mesh(self.device.type, tuple(self.sizes), mesh_dim_names=self.sizes._fields)
        if self.data_size > 1:
            self.data_group = mesh["replicate", "shard"]._flatten("data").get_group()

    @property
    def tensor_group(self) -> Any:
        """The ranks with parts of the same tensors by a Cut; None if only this one has them."""
        return self.mesh["tensor"].get_group() if self.mesh is not None and self.sizes.tensor > 1 else None

    # -- assembly ------------------------------------------------------------------------------------

    def place(self, model: nn.Module) -> nn.Module:
        self.layout = layout = DividedLayout(model, self)
        if self.mesh is not None:
            self.divide(model, self.mesh, layout.names)
        layout.follow(model, self.shared.cuts)
        if self.deferred is not None:
            part = lambda name, tensor: layout.split({name: tensor})[name]  # noqa: E731
            self.deferred.fill(model, part, device=self.device, beat=self.beat)
            layout.follow(model, self.shared.cuts)
            self.deferred = None
        return super().place(model)

    def divide(self, model: nn.Module, mesh: DeviceMesh, names: list[str]) -> None:
        """Reduce the model to this rank's part, in place. ``names``: of the tensors in its state_dict."""
        is_piped = self.staging is not None and self.sizes.pipeline > 1
        planned = self.staging.plan(model, self) if self.staging is not None and is_piped else None
        if self.splitting is not None and self.sizes.tensor > 1:
            self.shared = self.splitting.apply(model, self)
        if planned is not None:
            self.pipe = planned(model, mesh["pipeline"].get_group())
        if self.sharding is not None:
            over = mesh["replicate", "shard"] if self.sizes.replicate > 1 else mesh["shard"]
            holds = None if self.pipe is None else self.pipe.holds_alone
            self.sharding.apply(model, over, names, holds=holds)

    def wrap_optimizer(self, optimizer: Optimizer, model: nn.Module) -> Optimizer:
        if self.mesh is not None:
            refuse_if_needs_whole_weights(optimizer)
            whose = {parameter: name for name, parameter in model.named_parameters()}
            assert isinstance(self.layout, DividedLayout)
            self.layout.group([[whose[weight] for weight in group["params"]] for group in optimizer.param_groups])
            self.gradients = Gradients(optimizer, whose, self)
        return optimizer

    def grad_scaler(self, **options: Any) -> torch.amp.GradScaler:
        return SharedScaler(self.device.type, lambda found_inf: self.reduce(found_inf, "max"), **options)

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
            exchange(model.buffers(), lambda flat: dist.broadcast(flat, src=first, group=self.data_group))

    def unlike(self) -> dict[int, bool]:
        stages = [0] if self.pipe is None else self.pipe.unlike()
        shards = sorted({0, self.sizes.shard - 1})  # the last shard may have fewer rows
        return {self.sizes.rank_of(Layout(stage, 0, shard, 0)): not shard for stage in stages for shard in shards}
