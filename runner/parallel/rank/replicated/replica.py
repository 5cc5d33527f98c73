"""A rank of a replica that exchanges each update with the other replicas.

Each update is a transaction: the live replicas first agree on its members, then each rank takes its share of the global
batch, gradients and all counts are summed, and the update is committed, or repeated by the replicas that are left.
Between two updates all replicas have the same state, and nothing is exchanged: any replica could continue alone.

Source: https://github.com/meta-pytorch/torchft. Its own sampler loses a dead replica's samples; shares that are drawn
after the quorum do not.
"""

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _NormBase
from torch.optim import Optimizer

from manyheads.runner.parallel.rank.parallel import Parallel, Reduction
from manyheads.runner.parallel.rank.passes import ForwardBackward, ForwardResult, RunState
from manyheads.runner.parallel.rank.replicated.group import ReplicaGroup
from manyheads.runner.parallel.rank.replicated.membership import Membership
from manyheads.runner.run.checkpoint_places import StateDict

if TYPE_CHECKING:
    from manyheads.runner.data.rank.batches import Batch


class Replica(Parallel):
    """One rank of number ``replica``, from 0, of ``replicas``; a mixin for the strategy within a replica.

    ``patience``: seconds that an exchange may take, and by which a replica that hangs delays the others.
    """

    gradient_kinds = ()
    keeps_rows = True
    _has_joined = False  # the others, with which it has these
    _members: Membership
    _course: RunState

    def __init__(self, *, replica: int, replicas: int, patience: float, **inside: Any):
        super().__init__(**inside)
        self.replica, self.replicas, self.patience = replica, replicas, patience
        self.records, self.total_ranks = replica == 0 and self.rank == 0, replicas * self.world_size
        self._is_in_update = self._is_entered = False
        self._seed = 0

    @property
    def summary(self) -> str:
        inside = f"; in each {super().summary}" if self.world_size > 1 else ""
        return f"{self.replicas} replicas that may come and go, over gloo{inside}"

    def join(self) -> None:
        super().join()
        self._group = ReplicaGroup(self.rank, self.world_size)

    def wrap_optimizer(self, optimizer: Optimizer, model: nn.Module) -> Optimizer:
        self._optimizer = super().wrap_optimizer(optimizer, model)
        return self._optimizer

    def wrap_model(self, model: nn.Module) -> nn.Module:
        self._model, self._seed = super().wrap_model(model), torch.initial_seed()  # the run's own, on every rank
        return self._model

    def leave(self) -> None:
        if self._has_joined:
            self._members.close()
        super().leave()

    # -- joining the others --------------------------------------------------------------------------

    def catch_up(self, course: RunState, *, step: int) -> StateDict | None:
        self._course = course
        reached = -int(self._group.most([-step])[0])  # its ranks may have read two successive checkpoints
        self._members = Membership(
            self.replica, self._group, timeout=self.patience, standing=course.standing, step=reached
        )
        self._has_joined = True
        while not self._members.enter(course.idle):
            self._members.commit()
        self._is_entered = True  # the first update's quorum has been formed
        taken = self._members.taken()
        if taken is None and self._group.most([step > reached])[0]:
            raise RuntimeError("a checkpoint was written while this replica's ranks read it: they will read it again.")
        return taken

    def finish(self, course: RunState) -> bool:
        """Wait until the replica that writes the results has ended too, since it may need the others."""
        is_first = self.replica == 0
        while not self._group.most([course.idle()])[0]:
            self._enter()
            arrived = self._members.add(torch.tensor([float(is_first)], dtype=torch.float64))
            if self._members.commit() and arrived[0] > 0:
                break
        return is_first

    # -- one update ----------------------------------------------------------------------------------

    def compute_gradients(self, batches: "list[Batch]", step: ForwardBackward) -> list[ForwardResult]:
        if not self._has_joined:  # a throw-away pass
            return super().compute_gradients(batches, step)
        before = [buffer.clone() for buffer in self._model.buffers()]
        while True:
            self._enter()
            if (passed := self._attempt(batches, step)) is not None:
                return passed
            with torch.no_grad():  # a replica was lost: repeat the update with the others
                for buffer, value in zip(self._model.buffers(), before, strict=True):
                    buffer.copy_(value)
            self._optimizer.zero_grad()

    def _enter(self) -> None:
        """Form the quorum of the next exchange."""
        if self._is_entered:
            self._is_entered = False
            return
        while not self._members.enter(self._course.idle):
            self._members.commit()
        if self._members.taken() is not None:
            raise RuntimeError("the other replicas are a step ahead: this one restarts from their state.")

    def _attempt(self, batches: "list[Batch]", step: ForwardBackward) -> list[ForwardResult] | None:
        """Compute and exchange this rank's share; returns all results on the first rank, None if not committed."""
        share, of = self._members.share * self.world_size + self.rank, self._members.count * self.world_size
        self.data_rank, self.data_size = share, of
        held = self._course.drawn(batches, share=share, of=of)
        self._seed_update(share, of)
        self._is_in_update = True  # ``reduce`` now sums over the replicas too
        try:
            step = step.of(held)
        finally:
            self._is_in_update = False
        passes = super().compute_gradients(held, step)
        self._course.idle()  # it waits for the others now, each time for at most ``patience``
        row = self._exchange(step.flattened(passes))
        self._course.idle()
        if not self._members.commit():
            return None
        return [step.unflattened(row)] if self.rank == 0 else []  # else they would be counted several times

    def _exchange(self, row: Tensor) -> Tensor:
        """Average gradients and normalization statistics over all ranks, and sum the row."""
        trained = [p for group in self._optimizer.param_groups for p in group["params"]]
        has_gradient = torch.tensor([float(p.grad is not None) for p in trained], dtype=torch.float64)
        histories, summed = self._members.history, self._group.add(torch.cat([has_gradient, row]))
        totals = self._members.add(torch.cat([histories, summed]))
        histories, has_gradient, row = totals.split([len(histories), len(trained), len(row)])
        self._members.compare(histories)
        for parameter, count in zip(trained, has_gradient.tolist(), strict=True):
            if count and parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
        gradients = [p.grad for p in trained if p.grad is not None]
        if self.shares_model:  # already averaged within the replica; each rank has different parts
            self._members.average(gradients, inside=False)
            gradients = []
        self._members.average([*gradients, *_statistics(self._model)], inside=True)
        return row

    def reduce(self, values: Tensor, operation: Reduction = "sum") -> Tensor:
        values = super().reduce(values, operation)
        if self._is_in_update:
            values.copy_(self._members.add(values.cpu()))
        return values

    def _seed_update(self, share: int, of: int) -> None:
        """Seed random numbers, such as dropout's, by the update and the share alone."""
        key = ((self._seed * 1_000_003 + self._members.step) * 4099 + share) * 4099 + of
        torch.manual_seed(key % 2**63)


def _statistics(model: nn.Module) -> list[Tensor]:
    """Statistics that normalization layers learn in training passes; each replica sees other samples."""
    layers = [m for m in model.modules() if isinstance(m, _NormBase) and m.training and m.track_running_stats]
    return [b for layer in layers for b in layer.buffers(recurse=False) if b.is_floating_point()]
