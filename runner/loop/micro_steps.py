"""Forward and backward of an update's micro-batches, so that gradients are those of the mean over the global batch."""

from collections.abc import Sequence
from contextlib import AbstractContextManager
from copy import copy
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from manyheads.runner.data.keys import Multiset, added
from manyheads.runner.data.rank.batches import Batch
from manyheads.runner.loop.scores import Scores
from manyheads.runner.parallel.rank.parallel import Parallel
from manyheads.runner.parallel.rank.passes import ForwardBackward, ForwardResult
from manyheads.runner.parallel.rank.structure import call, tensors_in
from manyheads.runner.precision.rank.precision import PrecisionPolicy


class MicroSteps(ForwardBackward):
    """Forward and backward passes of an update's micro-batches, for which ``of`` prepares them.

    Losses are weighted so that the gradients, averaged over the data-parallel ranks, are those of the mean over the
    global batch, that is over everything that the task counts in it, however much of that each micro-batch has.
    """

    def __init__(
        self,
        model: nn.Module,
        optimizer: Optimizer,
        scores: Scores,
        parallel: Parallel,
        precision: PrecisionPolicy,
    ):
        self._model, self._optimizer, self._scores = model, optimizer, scores
        self._parallel, self._precision, self._used = parallel, precision, True
        self._counts_samples = scores.task.counts_samples
        self._total: float | Tensor | None = None

    def __call__(self, batch: Batch, *, last: bool) -> ForwardResult:
        with self._parallel.accumulating(self._model, last=last):
            with self._precision.autocast():
                objective, passed = self.objective(call(self._model, batch.inputs), batch)
            with self._precision.scaling(objective, self._optimizer, last=last and self._used) as scaled:
                scaled.backward()
                if last:
                    self._parallel.synchronize(self._optimizer)
        return passed

    def autocast(self) -> AbstractContextManager:
        return self._precision.autocast()

    def scaled(self, objective: Tensor) -> Tensor:
        with self._precision.scaling(objective, self._optimizer, last=self._used) as scaled:
            return scaled

    def of(self, batches: list[Batch]) -> "MicroSteps":
        if self._counts_samples:
            return self
        steps = copy(self)
        steps._total = self._counted(batches)
        return steps

    def unused(self) -> "MicroSteps":
        """The same, with which the optimizer will not step."""
        steps = copy(self)
        steps._used = False
        return steps

    def flattened(self, passes: list[ForwardResult]) -> Tensor:
        """Sums over the passes as one vector: loss, samples, counted, the samples taken, then the statistics."""
        scores = self._scores
        counted = [passed for passed in passes if passed.samples]
        sums = [(float(p.loss) * p.scale, float(p.samples), float(p.counted)) for p in counted]
        plain = torch.tensor([[0.0, 0.0, 0.0], *sums], dtype=torch.float64).sum(0)
        taken = [samples for passed in counted if (samples := passed.taken) is not None]
        of_each = [samples if isinstance(samples, Multiset) else Multiset.of(*samples) for samples in taken]
        return torch.cat(
            [
                plain,
                torch.tensor(added(of_each), dtype=torch.float64),
                scores.flatten(scores.add_up([p.observed for p in counted]) if counted else {}),
            ]
        )

    def unflattened(self, row: Tensor) -> ForwardResult:
        loss, samples, counted, *taken = row[:6].tolist()
        statistics = self._scores.unflatten(row[6:])
        loss_sum = torch.tensor(loss, dtype=torch.float64)
        return ForwardResult(loss_sum, 1.0, round(samples), counted, statistics, Multiset(*taken))

    def objective(self, outputs: Any, batch: Batch) -> tuple[Tensor, ForwardResult]:
        """The tensor to differentiate so that gradients add up to the update's, and the results of the forward pass."""
        loss = self._scores.loss(outputs, batch)
        passed, weight = self._scores.passed(loss, outputs, batch), self.weight(batch)
        if self._total is not None and not batch.counted and self._scores.is_mean:
            loss = nothing(outputs)
        return (loss if self._total is None and weight == 1 else loss * weight), passed

    def weight(self, batch: Batch) -> float | Tensor:
        """The factor of a micro-batch's loss, with which gradients add up to the update's."""
        is_mean = self._scores.is_mean
        if self._total is None:  # samples, of which the sampler knows how many each rank has
            return batch.weight if is_mean else batch.weight / max(1, batch.count)
        return self._parallel.data_size * (batch.counted if is_mean else bool(batch.count)) / self._total

    def _counted(self, batches: Sequence[Batch]) -> float | Tensor:
        """The number of counted elements in the global batch, at least 1; a tensor, (), if it had to be exchanged."""
        parallel = self._parallel
        count = float(sum(batch.counted for batch in batches))
        if parallel.data_size == 1:  # all ranks have the same micro-batches
            return max(1.0, count)
        # Filled on the device: a copy of the number would wait until a GPU has done all of its work.
        counted = torch.full((1,), count * parallel.counts_samples, dtype=torch.float64, device=parallel.device)
        return parallel.reduce(counted).clamp_(min=1)[0]


def nothing(outputs: Any) -> Tensor:
    """A zero loss with zero gradients, for a micro-batch in which nothing counts: a mean over it is undefined."""
    tensors = [t for t in tensors_in(outputs) if t.ndim and t.requires_grad]
    return torch.stack([t.sum() for t in tensors]).sum() * 0
