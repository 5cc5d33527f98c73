"""One rank's model with what changes it: how the gradients of an update come about, and the update itself."""

import math

import torch
from torch import Tensor, nn
from torch.nn.utils import clip_grad_norm_
from torch.optim import Optimizer

from runner.breakdown import Breakdown
from runner.data.batches import Batch
from runner.parallel.base import Parallel
from runner.precision.base import Precision
from runner.schedulers import Schedule
from runner.settings import Settings


class Replica:
    """Knows no backend: what differs hides behind ``parallel`` and ``precision``."""

    def __init__(
        self,
        *,
        model: nn.Module,
        loss: nn.Module,
        optimizer: Optimizer,
        schedule: Schedule,
        parallel: Parallel,
        precision: Precision,
        settings: Settings,
    ):
        self.model, self.loss, self.optimizer, self.schedule = model, loss, optimizer, schedule
        self.parallel, self.precision, self.settings = parallel, precision, settings
        self.parameters = precision.parameters(optimizer)
        self.needs_norm = math.isfinite(settings.clip_norm) or settings.on_nan == "skip"
        self.breakdown = Breakdown(model, parallel.unwrap(model), parallel.device, ranks=parallel.world_size)

    def accumulate(self, batches: list[Batch], update: int) -> list[tuple[Tensor, Tensor]]:
        """The gradients of an update, exchanged and in their true size; returns each micro-batch's loss and logits.

        update: its number, for the learning rate.
        """
        self.schedule.set(update)
        outputs = [self.backward(batch, last=batch is batches[-1]) for batch in batches]
        self.breakdown.mark("exchanged")
        self.precision.unscale(self.optimizer)
        return outputs

    def step(self, before: list[Tensor], *, wants_norm: bool) -> tuple[Tensor | float, bool]:
        """The update that the gradients ask for; returns their norm, where wanted, and whether it was left out.

        before: ``kept_buffers()`` from before the gradients were computed.
        """
        norm = self.gradient_norm() if wants_norm or self.needs_norm else 0.0
        is_skipped = self.settings.on_nan == "skip" and not bool(torch.isfinite(torch.as_tensor(norm)))
        if is_skipped:
            self.restore_buffers(before)
        if not is_skipped or self.precision.skips_overflow:
            with self.parallel.stepping(self.optimizer):
                self.precision.step(self.optimizer)
        self.precision.zero_grad(self.optimizer)
        self.breakdown.mark("stepped")
        return norm, is_skipped

    def backward(self, batch: Batch, *, last: bool, used: bool = True) -> tuple[Tensor, Tensor]:
        """One micro-batch's gradients, exchanged after the last one; returns mean loss and logits.

        ``used``: whether an update will use them.
        """
        with self.parallel.accumulating(self.model, last=last):
            with self.precision.autocast():
                logits = self.model(batch.inputs)
                loss = self.loss(logits, batch.targets)
            share = loss if batch.weight == 1 else loss * batch.weight
            with self.precision.scaling(share, self.optimizer, last=last and used) as scaled:
                scaled.backward()
                if last:
                    self.parallel.synchronize(self.optimizer)
        return loss.detach(), logits.detach()

    def gradient_norm(self) -> Tensor:
        """The norm over all gradients, clipped on the way when the settings say so; costly on small models."""
        if math.isfinite(self.settings.clip_norm):
            return clip_grad_norm_(self.parameters, self.settings.clip_norm)
        return total_norm([p.grad for p in self.parameters if p.grad is not None])

    def kept_buffers(self) -> list[Tensor]:
        """Copies of the model's buffers, where an update may have to be undone: BatchNorm has learned from it too."""
        return [b.clone() for b in self.model.buffers()] if self.settings.on_nan == "skip" else []

    def restore_buffers(self, before: list[Tensor]) -> None:
        with torch.no_grad():
            for buffer, value in zip(self.model.buffers(), before, strict=True):
                buffer.copy_(value)


def total_norm(gradients: list[Tensor]) -> Tensor:
    """The norm over all of them, (); as torch.nn.utils.get_total_norm, without sorting them by device and dtype."""
    return torch.linalg.vector_norm(torch.stack(torch._foreach_norm(gradients))) if gradients else torch.tensor(0.0)
