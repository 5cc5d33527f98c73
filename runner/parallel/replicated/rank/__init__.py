"""parallel=replicated: replicas that die and come back while the others train on, over torchft.

Each update is a transaction: who is there is agreed upon first, then each takes its share of the global batch,
gradients and all that is counted are added up, and the update is committed, or made again by those who are left.
Between two updates all replicas have the same state, and nothing is exchanged: a replica is a run of one rank that
is helped.

Source: https://github.com/meta-pytorch/torchft. Its own sampler loses a dead replica's samples; shares that are drawn
after the quorum do not.
"""

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _NormBase

from manyheads.runner.parallel.base.rank import Parallel, Reduction
from manyheads.runner.parallel.rank.passes import Course, MicroSteps, Passed
from manyheads.runner.parallel.replicated.rank.membership import Membership

if TYPE_CHECKING:
    from manyheads.runner.data.rank.batches import Batch


class Replicated(Parallel):
    """One replica. ``timeout``: seconds that an exchange may take; a replica that hangs holds the others up for it."""

    keeps_rows = True

    def __init__(self, *, trusted_network: bool, timeout: float, **place: Any):
        super().__init__(**place)
        self.replica, self.replicas, self.timeout = self.rank, self.world_size, timeout
        self.rank, self.world_size = 0, 1  # whatever is counted is everybody's already
        self._members: Membership | None = None
        self._course: Course | None = None
        self._is_in_update = self._is_entered = False
        self._seed = 0

    @property
    def summary(self) -> str:
        return f"{self.replicas} replicas that may come and go, over gloo"

    @property
    def records(self) -> bool:
        return self.replica == 0

    def wrap_model(self, model: nn.Module) -> nn.Module:
        self._model = model
        return model

    def leave(self) -> None:
        if self._members is not None:
            self._members.close()

    # -- where the others are ------------------------------------------------------------------------

    def catch_up(self, course: Course, *, step: int) -> dict[str, Any] | None:
        self._course, self._seed = course, torch.initial_seed()
        self._members = Membership(self.replica, timeout=self.timeout, standing=course.standing, step=step)
        while not self._members.enter(course.idle):
            self._members.commit()
        self._is_entered = True  # the first update's quorum is made
        return self._members.taken()

    def finish(self, course: Course) -> bool:
        """Stay until the replica that writes the results has come to the end too, for which it may need the others."""
        assert self._members is not None
        while not course.idle():
            self._enter()
            arrived = self._members.add(torch.tensor([float(self.records)], dtype=torch.float64))
            if self._members.commit() and arrived[0] > 0:
                break
        return self.records

    # -- one update ----------------------------------------------------------------------------------

    def compute_gradients(self, batches: "list[Batch]", step: MicroSteps) -> list[Passed]:
        if self._members is None:  # a throw-away pass
            return super().compute_gradients(batches, step)
        before = [buffer.clone() for buffer in self._model.buffers()]
        while True:
            self._enter()
            if (passed := self._attempt(batches, step)) is not None:
                return [passed]
            with torch.no_grad():  # some replica is gone: once more, by those who are left
                for buffer, value in zip(self._model.buffers(), before, strict=True):
                    buffer.copy_(value)
            for parameter in self._model.parameters():
                parameter.grad = None

    def _enter(self) -> None:
        """Make the quorum of the next exchange."""
        assert self._members is not None
        assert self._course is not None
        if self._is_entered:
            self._is_entered = False
            return
        while not self._members.enter(self._course.idle):
            self._members.commit()
        if self._members.taken() is not None:
            raise RuntimeError("the other replicas are a step ahead: this one restarts from their state.")

    def _attempt(self, batches: "list[Batch]", step: MicroSteps) -> Passed | None:
        """This replica's share, and what comes of it with the others'; None where the update is not committed."""
        assert self._members is not None
        assert self._course is not None
        share, of = self._members.share, self._members.count
        held = self._course.drawn(batches, share=share, of=of)
        self._seed_update(share, of)
        self._is_in_update = True  # what the task counts is added up now
        try:
            step = step.of(held)
        finally:
            self._is_in_update = False
        passes = super().compute_gradients(held, step)
        self._course.idle()  # it waits for the others now, each time for at most ``timeout``
        row = self._exchange(step.flattened(passes))
        self._course.idle()
        return step.unflattened(row) if self._members.commit() else None

    def _exchange(self, row: Tensor) -> Tensor:
        """Average gradients and statistics of normalization over the replicas, and add the row up."""
        assert self._members is not None
        trained = [p for p in self._model.parameters() if p.requires_grad]
        has_gradient = torch.tensor([float(p.grad is not None) for p in trained], dtype=torch.float64)
        histories = self._members.history
        found = self._members.add(torch.cat([histories, has_gradient, row]))
        histories, has_gradient, row = found.split([len(histories), len(trained), len(row)])
        self._members.compare(histories)
        for parameter, count in zip(trained, has_gradient.tolist(), strict=True):
            if count and parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
        gradients = [p.grad for p in trained if p.grad is not None]
        self._members.average([*gradients, *_statistics(self._model)])
        return row

    def reduce(self, values: Tensor, operation: Reduction = "sum") -> Tensor:
        if self._is_in_update and self._members is not None:
            values.copy_(self._members.add(values.cpu()))
        return values  # else it is everybody's already

    def _seed_update(self, share: int, of: int) -> None:
        """What the model draws, as for dropout, depends on the update and the share, not on what happened before."""
        assert self._members is not None
        key = ((self._seed * 1_000_003 + self._members.step) * 4099 + share) * 4099 + of
        torch.manual_seed(key % 2**63)


def _statistics(model: nn.Module) -> list[Tensor]:
    """What normalization learns from the samples in a training pass, of which each replica sees its own."""
    layers = [m for m in model.modules() if isinstance(m, _NormBase) and m.training and m.track_running_stats]
    return [b for layer in layers for b in layer.buffers(recurse=False) if b.is_floating_point()]
