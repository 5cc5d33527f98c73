"""One update: forward and backward of its micro-batches, the exchange of gradients, clipping, the optimizer's step."""

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.utils import clip_grad_norm_
from torch.optim import Optimizer

from manyheads.runner.data.rank.batches import Batch
from manyheads.runner.loop.breakdown import Breakdown
from manyheads.runner.parallel.base.rank import Parallel
from manyheads.runner.precision.base.rank import Precision
from manyheads.runner.random.rank.rng import get_state, set_state
from manyheads.runner.scheduler.rank import Schedule


class Made(NamedTuple):
    """What an update came to. ``passes``: the mean loss () and the model's outputs of each micro-batch, detached.

    ``norm``: of the gradients over all parameters, 0 where nobody asked for it; ``is_skipped``: whether the weights
    stayed as they were, because the gradients were not finite.
    """

    passes: list[tuple[Tensor, Tensor]]
    norm: Tensor | float
    is_skipped: bool


class Update:
    """Changes one rank's model. Knows no backend: what differs hides behind ``parallel`` and ``precision``.

    ``clip_norm``: the largest norm that gradients may have, or inf. ``on_nan``: "error", or "skip" to leave out updates
    whose gradients are not finite.
    """

    def __init__(
        self,
        *,
        model: nn.Module,
        loss: nn.Module,
        optimizer: Optimizer,
        schedule: Schedule,
        parallel: Parallel,
        precision: Precision,
        clip_norm: float,
        on_nan: str,
    ):
        self.model, self.loss, self.optimizer, self.schedule = model, loss, optimizer, schedule
        self.parallel, self.precision = parallel, precision
        self.clip_norm, self.skips = clip_norm, on_nan == "skip"
        self.parameters = precision.parameters(optimizer)
        self.breakdown = Breakdown(model, parallel.unwrap(model), parallel.device, ranks=parallel.world_size)

    def __call__(
        self,
        batches: list[Batch],
        *,
        number: int,
        wants_norm: bool,
        on_gradients: Callable[[], None] | None = None,
    ) -> Made:
        """Make update ``number`` of the run, counted from 0.

        ``wants_norm``: of the gradients; costly on small models. ``on_gradients``: called when they are exchanged and
        in their true size, before they are clipped.
        """
        self.schedule.set(number)
        buffers = [b.clone() for b in self.model.buffers()] if self.skips else []  # BatchNorm learns from bad data too
        passes = [self.backward(batch, last=batch is batches[-1]) for batch in batches]
        self.breakdown.mark("exchanged")
        self.precision.unscale(self.optimizer)
        if on_gradients is not None:
            on_gradients()
        norm, is_skipped = self._step(buffers, wants_norm=wants_norm)
        self.breakdown.mark("stepped")
        return Made(passes, norm, is_skipped)

    def backward(self, batch: Batch, *, last: bool, used: bool = True) -> tuple[Tensor, Tensor]:
        """One micro-batch's gradients, exchanged after the last one; returns mean loss and outputs, detached.

        ``used``: whether an update will use them.
        """
        with self.parallel.accumulating(self.model, last=last):
            with self.precision.autocast():
                outputs = self.model(batch.inputs)
                loss = self.loss(outputs, batch.targets)
            share = loss if batch.weight == 1 else loss * batch.weight
            with self.precision.scaling(share, self.optimizer, last=last and used) as scaled:
                scaled.backward()
                if last:
                    self.parallel.synchronize(self.optimizer)
        return loss.detach(), outputs.detach()

    def prime(self, example: Callable[[], Batch]) -> None:
        """Let the strategy's wrapper settle by passes that leave no trace. ``example``: makes a micro-batch."""
        state, buffers = get_state(), [b.clone() for b in self.model.buffers()]

        def throw_away() -> None:
            self.model.train()
            self.backward(example(), last=True, used=False)
            self.precision.zero_grad(self.optimizer)

        self.parallel.prime(throw_away)
        self._restore_buffers(buffers)
        set_state(state)

    def _step(self, buffers: list[Tensor], *, wants_norm: bool) -> tuple[Tensor | float, bool]:
        """The gradients' norm, and whether the update was left out. ``buffers``: the model's before the update."""
        norm = self.gradient_norm() if wants_norm or self.skips or math.isfinite(self.clip_norm) else 0.0
        is_skipped = self.skips and not bool(torch.isfinite(torch.as_tensor(norm)))
        if is_skipped:
            self._restore_buffers(buffers)
        if not is_skipped or self.precision.skips_overflow:
            with self.parallel.stepping(self.optimizer):
                self.precision.step(self.optimizer)
        self.precision.zero_grad(self.optimizer)
        return norm, is_skipped

    def gradient_norm(self) -> Tensor:
        """Over all gradients, which are clipped on the way where there is a limit."""
        if math.isfinite(self.clip_norm):
            return clip_grad_norm_(self.parameters, self.clip_norm)
        return total_norm([p.grad for p in self.parameters if p.grad is not None])

    def _restore_buffers(self, before: list[Tensor]) -> None:
        with torch.no_grad():
            for buffer, value in zip(self.model.buffers(), before, strict=True):
                buffer.copy_(value)


def total_norm(gradients: list[Tensor]) -> Tensor:
    """The norm over all of them, (); as torch.nn.utils.get_total_norm, without sorting them by device and dtype."""
    return torch.linalg.vector_norm(torch.stack(torch._foreach_norm(gradients))) if gradients else torch.tensor(0.0)
