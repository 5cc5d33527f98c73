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
from manyheads.runner.loop.breakdown import Breakdown
from manyheads.runner.loop.micro_steps import MicroSteps
from manyheads.runner.loop.scores import Scores
from manyheads.runner.loop.sharpness import Sharpness
from manyheads.runner.loop.spikes import Spike, Spikes
from manyheads.runner.loop.verification import Verification
from manyheads.runner.loop.views import averaged
from manyheads.runner.optimizer.rank.freezing import Phases
from manyheads.runner.parallel.rank.parallel import Parallel
from manyheads.runner.parallel.rank.passes import ForwardResult
from manyheads.runner.precision.rank.precision import Precision
from manyheads.runner.scheduler.rank.schedules import Schedule


class UpdateResult(NamedTuple):
    """The outcome of an update. ``passes``: the results of each micro-batch's forward pass.

    ``norm``: of the gradients over all parameters, 0 if it was not requested; ``is_skipped``: whether the weights were
    left unchanged, because the gradients were not finite or for a ``spike``.
    """

    passes: list[ForwardResult]
    norm: Tensor | float
    is_skipped: bool
    spike: Spike | None = None


class Update:
    """Changes one rank's model, for any backend: differences are hidden behind ``parallel`` and ``precision``.

    ``scores``: the task, and what is measured. ``names``: of the parameters that the optimizer has on this rank.
    ``clip_norm``, ``clip_value``: the largest norm and absolute value that gradients may have, or inf. ``on_nan``:
    "error", or "skip" to skip updates whose gradients are not finite. ``frozen_modules``: modules that stay in
    evaluation mode. ``sharpness``: SAM's settings, if it is used; ``phases``: what is frozen in which epoch, if
    anything; ``spikes``: finds spikes, if they are looked for. ``tta``: the views over which evaluations average the
    outputs.
    """

    def __init__(
        self,
        *,
        model: nn.Module,
        scores: Scores,
        optimizer: Optimizer,
        names: Sequence[str],
        schedule: Schedule,
        parallel: Parallel,
        precision: Precision,
        clip_norm: float,
        clip_value: float = math.inf,
        on_nan: str,
        frozen_modules: Sequence[nn.Module] = (),
        sharpness: Sharpness | None = None,
        phases: Phases | None = None,
        spikes: Spikes | None = None,
        tta: str = "none",
    ):
        self.model, self.scores, self.optimizer, self.schedule = model, scores, optimizer, schedule
        self.parallel, self.precision = parallel, precision
        self.clip_norm, self.clip_value, self.skips = clip_norm, clip_value, on_nan == "skip"
        self.names, self.frozen_modules, self.sharpness, self.phases = names, frozen_modules, sharpness, phases
        self.spikes = spikes
        self.verification: Verification | None = None  # checks for silent data corruption, if there are any
        self.tta, self.parameters = tta, precision.parameters(optimizer)
        self.breakdown = Breakdown(model, parallel.unwrap(model), parallel.device, ranks=parallel.world_size)

    def __call__(
        self,
        batches: list[Batch],
        *,
        number: int,
        wants_norm: bool,
        on_gradients: Callable[[], None] | None = None,
    ) -> UpdateResult:
        """Make update ``number`` of the run, counted from 0.

        ``wants_norm``: of the gradients; costly on small models. ``on_gradients``: called when they are exchanged and
        unscaled, before they are clipped.
        """
        self.schedule.set(number)
        if self.spikes is not None and (spike := self.spikes.skipped.pop(number + 1, None)) is not None:
            return self._leave_out(batches, spike)
        may_skip = self.skips or self.spikes is not None
        buffers = [b.clone() for b in self.model.buffers()] if may_skip else []  # BatchNorm learns from bad data too
        checks = self.verification if self.verification is not None and self.verification.is_due(number + 1) else None
        passes = self.compute_gradients(batches) if checks is None else checks.compute(number + 1, batches)
        if self.sharpness is not None and number % self.sharpness.every == 0:
            self._sam_second_pass(self.sharpness, batches)
        self.breakdown.mark("exchanged")
        self.precision.unscale(self.optimizer)
        if on_gradients is not None:
            on_gradients()
        if self.verification is not None:
            self.verification.rest.check()
            self.verification.rest.forget()
        norm = self.gradient_norm() if wants_norm or may_skip or math.isfinite(self.clip_norm) else 0.0
        spike = self._spike(number + 1, passes, norm)
        is_skipped = self._step(buffers, norm, spike)
        if checks is not None:
            checks.rest.note(number + 1)
        self.breakdown.mark("stepped")
        return UpdateResult(passes, norm, is_skipped, spike)

    def compute_gradients(self, batches: list[Batch]) -> list[ForwardResult]:
        """Run forward and backward passes of these micro-batches, after which gradients are exchanged."""
        passes = self.parallel.compute_gradients(batches, self.micro_steps(batches))
        if self.phases is not None:
            self.phases.drop_gradients()
        return passes

    def micro_steps(self, batches: list[Batch], *, used: bool = True) -> MicroSteps:
        """Forward and backward passes of these micro-batches. ``used``: whether the optimizer will step with them."""
        return MicroSteps(
            self.model, self.optimizer, self.scores, self.parallel, self.precision, batches=batches, used=used
        )

    def evaluate(
        self, model: nn.Module, batch: Batch, *, on_outputs: Callable[[Any], None] | None = None
    ) -> ForwardResult | None:
        """The results of a forward pass without gradients; None if this rank's results for the batch do not count.

        ``on_outputs``: called with the model's outputs.
        """
        with self.precision.autocast():
            if self.tta == "none":
                outputs = self.parallel.evaluate(model, batch.inputs)
            else:
                outputs = averaged(self.tta, partial(self.parallel.evaluate, model), batch.inputs)
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
            made = self.parallel.compute_gradients(batches, self.micro_steps(batches, used=False))
            if warm_up:
                self._rehearse_logging(made)
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
        if self.phases is not None:
            self.phases.enter(epoch)
        self.enter_training()

    def enter_training(self) -> None:
        """Set the model to training mode, except for frozen modules."""
        self.model.train()
        for module in (*self.frozen_modules, *(() if self.phases is None else self.phases.norms)):
            module.eval()

    def own_weights(self) -> dict[str, Tensor]:
        """This rank's part of the trained weights, under the user's own names."""
        return self.precision.weights(self.parallel.unwrap(self.model))

    def put_own(self, weights: dict[str, Tensor], source: Any) -> None:
        """Load this rank's part of the weights into its part of the model."""
        if self.verification is not None:
            self.verification.rest.forget()
        model = self.parallel.unwrap(self.model)
        load_model(model, weights, source)
        self.precision.weights_loaded(model, weights)

    def gradient_norm(self) -> Tensor:
        """The norm over all gradients, which are clipped at the same time if there is a limit."""
        return self.parallel.gradient_norm(self.parameters, limit=self.clip_norm)

    def _sam_second_pass(self, sharpness: Sharpness, batches: list[Batch]) -> None:
        """Replace the gradients of these micro-batches by those from uphill; weights and buffers are unchanged."""
        buffers = [buffer.clone() for buffer in self.model.buffers()]
        norm = self.parallel.gradient_norm(self.parameters, limit=math.inf)
        with sharpness.uphill(self.parameters, norm):
            self.precision.zero_grad(self.optimizer)
            self.compute_gradients(batches)
        self.restore_buffers(buffers)

    def _leave_out(self, batches: list[Batch], spike: Spike) -> UpdateResult:
        """An update whose batches are skipped, so that nothing is computed."""
        for mark in ("exchanged", "stepped"):
            self.breakdown.mark(mark)
        nothing = torch.zeros(())
        passes = [ForwardResult(nothing, 0, each.count, 0, None, (each.epoch, each.own_ids)) for each in batches]
        return UpdateResult(passes, math.nan, True, spike)

    def _spike(self, step: int, passes: list[ForwardResult], norm: Tensor | float) -> Spike | None:
        if self.spikes is None:
            return None
        return self.spikes.judge(step, passes, torch.as_tensor(norm), is_scaled=self.precision.skips_overflow)

    def _step(self, buffers: list[Tensor], norm: Tensor | float, spike: Spike | None) -> bool:
        """Step, or skip the update; returns whether it was skipped. ``buffers``: the model's, before the update."""
        if self.clip_value < math.inf:
            clip_grad_value_(self.parameters, self.clip_value)
        is_finite = not (self.skips or spike) or bool(torch.isfinite(torch.as_tensor(norm)))
        is_skipped = not is_finite or spike is not None
        if is_skipped:
            self.restore_buffers(buffers)
        if is_skipped and is_finite:
            self.precision.skip(self.optimizer)
        elif not is_skipped or self.precision.skips_overflow:
            with self.parallel.stepping(self.optimizer):
                self.precision.step(self.optimizer)
        self.precision.zero_grad(self.optimizer)
        return is_skipped

    def restore_buffers(self, before: list[Tensor]) -> None:
        """Restore these values of the model's buffers."""
        with torch.no_grad():
            for buffer, value in zip(self.model.buffers(), before, strict=True):
                buffer.copy_(value)
