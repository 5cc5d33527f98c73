"""One update: forward and backward of its micro-batches, the exchange of gradients, clipping, the optimizer's step."""

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.utils import clip_grad_value_
from torch.optim import Optimizer

from manyheads.runner.checkpoint.rank.fit import load_model
from manyheads.runner.data.rank.batches import Batch
from manyheads.runner.data.rank.rng import get_state, set_state
from manyheads.runner.loop.guards.guard import Compute, Guard
from manyheads.runner.loop.micro_steps import MicroSteps
from manyheads.runner.loop.scores import Scores
from manyheads.runner.parallel.rank.parallel import Parallel
from manyheads.runner.parallel.rank.passes import ForwardResult
from manyheads.runner.precision.rank.precision import PrecisionPolicy
from manyheads.runner.scheduler.rank.schedules import Schedule


class Wrapped(NamedTuple):
    """A model and its optimizer as the strategy and the precision need them.

    ``names``: of the parameters that the optimizer has on this rank, in its order.
    """

    model: nn.Module
    optimizer: Optimizer
    names: Sequence[str]


class Clipping(NamedTuple):
    """The largest norm of all gradients, and the largest absolute value of one; inf for no limit."""

    norm: float = math.inf
    value: float = math.inf


UNCLIPPED = Clipping()


class UpdateResult(NamedTuple):
    """The outcome of an update. ``passes``: the results of each micro-batch's forward pass.

    ``norm``: of the gradients over all parameters, 0 if it was not requested; ``rejection``: the reason for which a
    guard had the update skipped, so that the weights are unchanged; None if it was made.
    """

    passes: list[ForwardResult]
    norm: Tensor | float
    rejection: object | None = None


class Update:
    """Changes one rank's model, for any backend: differences are hidden behind ``parallel`` and ``precision``.

    ``scores``: the task, and what is measured. ``guards``: what looks at updates, stops or repeats them, in order; the
    list may be changed between updates.
    """

    def __init__(
        self,
        wrapped: Wrapped,
        *,
        scores: Scores,
        schedule: Schedule,
        parallel: Parallel,
        precision: PrecisionPolicy,
        clipping: Clipping = UNCLIPPED,
        guards: Sequence[Guard] = (),
    ):
        self.model, self.optimizer, self.names = wrapped
        self.scores, self.schedule, self.parallel, self.precision = scores, schedule, parallel, precision
        self.clipping, self.guards = clipping, [*guards]
        self.parameters = precision.parameters(self.optimizer)
        self._steps = MicroSteps(self.model, self.optimizer, scores, parallel, precision)

    def __call__(self, batches: list[Batch], *, number: int, wants_norm: bool) -> UpdateResult:
        """Make update ``number`` of the run, counted from 0. ``wants_norm``: of the gradients; costly on small models.

        The points at which guards are asked are those of loop/guards/guard.py.
        """
        self.schedule.set(number)
        step, guards = number + 1, tuple(self.guards)
        for guard in guards:
            if (rejection := guard.leave_out(step)) is not None:
                return self._leave_out(batches, rejection)
        judges = [guard for guard in guards if guard.rejects]
        buffers = [b.clone() for b in self.model.buffers()] if judges else []  # BatchNorm learns from bad data too
        compute: Compute = self.compute_gradients
        for guard in reversed(guards):
            compute = partial(guard.compute, self, step, compute=compute)
        passes = compute(batches)
        for guard in guards:
            guard.exchanged(self, step, batches)
        self.precision.unscale(self.optimizer)
        for guard in guards:
            guard.unscaled()
        norm = self.gradient_norm() if wants_norm or judges or math.isfinite(self.clipping.norm) else 0.0
        rejection = self._rejection(step, passes, norm) if judges else None
        self._step(buffers, norm, is_rejected=rejection is not None)
        for guard in guards:
            guard.stepped(step)
        return UpdateResult(passes, norm, rejection)

    def compute_gradients(self, batches: list[Batch]) -> list[ForwardResult]:
        """Run forward and backward passes of these micro-batches, after which gradients are exchanged."""
        passes = self.parallel.compute_gradients(batches, self.micro_steps(batches))
        for guard in self.guards:
            guard.computed()
        return passes

    def micro_steps(self, batches: list[Batch], *, used: bool = True) -> MicroSteps:
        """Forward and backward passes of these micro-batches. ``used``: whether the optimizer will step with them."""
        steps = self._steps.of(batches)
        return steps if used else steps.unused()

    def evaluate(
        self, model: nn.Module, batch: Batch, *, on_outputs: Callable[[Any], None] | None = None
    ) -> ForwardResult | None:
        """The results of a forward pass without gradients; None if this rank's results for the batch do not count.

        ``on_outputs``: called with the model's outputs.
        """
        forward = partial(self.parallel.evaluate, model)
        for guard in reversed(self.guards):
            forward = partial(guard.evaluate, forward)
        with self.precision.autocast():
            outputs = forward(batch.inputs)
            if not (batch.count and self.parallel.counts_samples):
                return None
            passed = self.scores.passed(self.scores.loss(outputs, batch), outputs, batch)
            if on_outputs is not None:
                on_outputs(outputs)
            return passed

    def prime(self, example: Callable[[], Batch], *, warm_up: bool = False) -> None:
        """Run passes without side effects until the strategy's wrapper has settled. ``example``: makes a micro-batch.

        ``warm_up``: at least one pass is run under every strategy, which compiles the model and lets a GPU choose its
        algorithms, and what a log window computes, whose operations a GPU loads when they are first used; so that none
        of this counts as training time.
        """
        state, buffers, passes = get_state(), [b.clone() for b in self.model.buffers()], 0

        def throw_away() -> None:
            nonlocal passes
            passes += 1
            self.enter_training()
            batches = [example()]
            computed = self.parallel.compute_gradients(batches, self.micro_steps(batches, used=False))
            if warm_up:
                self._rehearse_logging(computed)
            self.precision.zero_grad(self.optimizer)

        self.parallel.prime(throw_away)
        if warm_up and not passes and not self.parallel.backward_steps:
            throw_away()
        self.restore_buffers(buffers)
        set_state(state)

    def _rehearse_logging(self, passes: list[ForwardResult]) -> None:
        """Compute what a log window of several updates does on the device."""
        self.gradient_norm()
        several = [passed for passed in passes if passed.samples] * 2  # a single one would not be concatenated
        if self.parallel.counts_samples and several:
            torch.stack([passed.loss for passed in several]).cpu()
            self.scores.add_up([passed.observed for passed in several])

    def enter_epoch(self, epoch: int) -> None:
        """Prepare for training epoch ``epoch``, counted from 0, with the parameters trained in it."""
        for guard in self.guards:
            guard.enter_epoch(epoch)
        self.enter_training()

    def enter_training(self) -> None:
        """Set the model to training mode, except for what guards freeze."""
        self.model.train()
        for guard in self.guards:
            guard.enter_training()

    def own_weights(self) -> dict[str, Tensor]:
        """This rank's part of the trained weights, under the user's own names."""
        return self.precision.weights(self.parallel.unwrap(self.model))

    def put_own(self, weights: dict[str, Tensor], source: Any) -> None:
        """Load this rank's part of the weights into its part of the model."""
        for guard in self.guards:
            guard.weights_loaded()
        model = self.parallel.unwrap(self.model)
        load_model(model, weights, source)
        self.precision.weights_loaded(model, weights)

    def gradient_norm(self) -> Tensor:
        """The norm over all gradients, which are clipped at the same time if there is a limit."""
        return self.parallel.gradient_norm(self.parameters, limit=self.clipping.norm)

    def _leave_out(self, batches: list[Batch], rejection: object) -> UpdateResult:
        """An update whose batches are skipped, so that nothing is computed."""
        nothing = torch.zeros(())
        passes = [ForwardResult(nothing, 0, b.count, 0, None, (b.epoch, b.own_ids)) for b in batches]
        return UpdateResult(passes, math.nan, rejection)

    def _rejection(self, step: int, passes: list[ForwardResult], norm: Tensor | float) -> object | None:
        """The reason of the first guard that rejects the update, if any does."""
        reasons = (guard.reject(self, step, passes, torch.as_tensor(norm)) for guard in self.guards if guard.rejects)
        return next((reason for reason in reasons if reason is not None), None)

    def _step(self, buffers: list[Tensor], norm: Tensor | float, *, is_rejected: bool) -> None:
        """Clip values and step, or skip the update. ``buffers``: the model's, before the update."""
        if self.clipping.value < math.inf:
            clip_grad_value_(self.parameters, self.clipping.value)
        if is_rejected:
            self.restore_buffers(buffers)
        if is_rejected and bool(torch.isfinite(torch.as_tensor(norm))):
            self.precision.skip(self.optimizer)
        elif not is_rejected or self.precision.skips_overflow:
            with self.parallel.stepping(self.optimizer):
                self.precision.step(self.optimizer)
        self.precision.zero_grad(self.optimizer)

    def restore_buffers(self, before: list[Tensor]) -> None:
        """Restore these values of the model's buffers."""
        with torch.no_grad():
            for buffer, value in zip(self.model.buffers(), before, strict=True):
                buffer.copy_(value)
