"""The only training loop. It knows no backend: what differs hides behind the bases of parallel and precision."""

import logging
import math
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils import clip_grad_norm_, get_total_norm
from torch.optim import Optimizer

from runner.clock import Clock
from runner.data.batches import Batch
from runner.data.loader import Loader
from runner.heartbeat import Heartbeat
from runner.metrics import Meter, Sums
from runner.parallel.base import Parallel
from runner.precision.base import Precision
from runner.progress import Progress
from runner.reporter import Reporter
from runner.rng import get_state, set_state
from runner.schedulers import Schedule

STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM)
EVALUATION_INTERVAL = 50  # batches between two questions whether to stop
log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Settings:
    """The trainer section of the run config, as far as the loop needs it."""

    epochs: int
    total_steps: int
    evaluate_every: int
    grad_accumulation: int
    clip_norm: float
    log_every: int
    on_nan: str


class Trainer:
    """Trains one rank's replica. ``stopped``: the signal that ended the run early, or None.

    ``save``: writes a checkpoint when called with ``best``; its only argument.
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
        train: Loader,
        evaluation: Loader,
        settings: Settings,
        reporter: Reporter,
        heartbeat: Heartbeat,
    ):
        self.model, self.loss, self.optimizer, self.schedule = model, loss, optimizer, schedule
        self.parallel, self.precision = parallel, precision
        self.train, self.evaluation = train, evaluation
        self.settings, self.reporter, self.heartbeat = settings, reporter, heartbeat
        self.progress = Progress()
        self.meter, self.clock = Meter(parallel), Clock()
        self.parameters = precision.parameters(optimizer)
        self.stopped: signal.Signals | None = None

    # -- the run -------------------------------------------------------------------------------------

    def fit(self, save: Callable[..., None], *, due_after_step: Callable[[int], bool]) -> None:
        """Train until all updates are done, or a signal asks to stop. Raises FloatingPointError for a NaN loss."""
        self.reporter.start(self.progress, total=self.settings.total_steps)
        while not self.done and self.stopped is None:
            self.train_epoch(save, due_after_step)
            if self.stopped is None:
                self.end_epoch(save)
        if self.stopped is not None:
            save(best=False)

    @property
    def done(self) -> bool:
        progress = self.progress
        return progress.step >= self.settings.total_steps and progress.epoch_step == 0

    def train_epoch(self, save: Callable[..., None], due_after_step: Callable[[int], bool]) -> None:
        """The rest of the current epoch, from where the progress says on."""
        progress, last = self.progress, self._last_step_of_epoch()
        progress.started = progress.started or time.time()
        self.model.train()
        batches = self.train.epoch(progress.epoch, progress.epoch_step)
        self.clock.resume()
        for update in islice(self.clock.waiting(self._updates(batches)), max(0, last - progress.step)):
            is_logged = (progress.step + 1) % self.settings.log_every == 0 or progress.step + 1 == last
            norm = self.update(update, wants_norm=is_logged)
            progress.step += 1
            progress.epoch_step += 1
            self.clock.tick()
            self.heartbeat.beat()
            self.reporter.update(progress.step)
            if is_logged:
                self.collect()
                self.reporter.interval(progress, lr=self.schedule.lr, grad_norm=float(norm))
            if due_after_step(progress.step):
                self.collect()
                save(best=False)
                self.clock.resume()
            if self.stopped is not None:
                return

    def end_epoch(self, save: Callable[..., None]) -> None:
        """Evaluate when it is time, write the epoch's row, and leave a checkpoint."""
        progress, settings = self.progress, self.settings
        is_last = progress.step >= settings.total_steps
        wanted = settings.evaluate_every and ((progress.epoch + 1) % settings.evaluate_every == 0 or is_last)
        measured = self.evaluate() if wanted else {}
        if measured is None:
            return
        slowest = torch.tensor([progress.seconds], dtype=torch.float64, device=self.parallel.device)
        seconds = self.parallel.reduce(slowest, "max").item()
        is_best = self.reporter.epoch(progress, seconds, measured)
        progress.train_seconds += seconds
        progress.end_epoch()
        save(best=is_best)

    # -- one update ----------------------------------------------------------------------------------

    def update(self, batches: list[Batch], *, wants_norm: bool) -> Tensor | float:
        """Forward and backward of each micro-batch, then one step; returns the gradient norm where it is wanted."""
        self.schedule.set(self.progress.step)
        outputs = [self.backward(batch, last=batch is batches[-1]) for batch in batches]
        self.precision.unscale(self.optimizer)
        norm = self.gradient_norm(wanted=wants_norm)
        skip = self.settings.on_nan == "skip" and not torch.isfinite(torch.as_tensor(norm))
        if not skip or self.precision.skips_overflow:
            with self.parallel.stepping(self.optimizer):
                self.precision.step(self.optimizer)
        self.optimizer.zero_grad()
        for batch, (loss, logits) in zip(batches, outputs, strict=True):
            self.meter.note_corrupt(len(batch.corrupt))
            if batch.count and not skip:
                self.meter.add(loss, logits, batch.targets, batch.count)
            self.reporter.corrupt(batch.corrupt)
        self.progress.skipped += skip
        return norm

    def backward(self, batch: Batch, *, last: bool) -> tuple[Tensor, Tensor]:
        """One micro-batch's gradients, exchanged after the last one; returns mean loss and logits."""
        with self.parallel.accumulating(self.model, last=last):
            with self.precision.autocast():
                logits = self.model(batch.inputs)
                loss = self.loss(logits, batch.targets)
            share = loss if batch.weight == 1 else loss * batch.weight
            with self.precision.scaling(share, self.optimizer, last=last) as scaled:
                scaled.backward()
                if last:
                    self.parallel.synchronize(self.optimizer)
        return loss.detach(), logits.detach()

    def gradient_norm(self, *, wanted: bool) -> Tensor | float:
        """The norm over all gradients, clipped on the way when the settings say so; costly on small models."""
        if math.isfinite(self.settings.clip_norm):
            return clip_grad_norm_(self.parameters, self.settings.clip_norm)
        if wanted or self.settings.on_nan == "skip":
            return get_total_norm([p.grad for p in self.parameters if p.grad is not None])
        return 0.0

    # -- between updates -----------------------------------------------------------------------------

    def collect(self) -> None:
        """Add up the ranks' sums since the last call, and hear whether any rank was asked to stop.

        Raises FloatingPointError when the loss is not finite any more.
        """
        seconds, waited, warm = self.clock.lap()
        sums, flags = self.meter.collect(seconds=seconds, data_seconds=waited, **self._stop_flags())
        self._hear(flags)
        progress = self.progress
        progress.samples += int(sums.count)
        progress.corrupt += int(sums.corrupt)
        progress.seconds += seconds
        if warm:
            progress.timed_samples += sums.count
            progress.timed_seconds += seconds
        progress.interval.add(sums)
        progress.sums.add(sums)
        if not math.isfinite(sums.loss):
            raise FloatingPointError(
                f"the loss became {sums.loss} between step {progress.step - self.settings.log_every} and step "
                f"{progress.step}. Lower optimizer.lr, add scheduler.warmup_epochs or trainer.clip_norm; "
                "trainer.detect_anomaly=true finds the operation, trainer.on_nan=skip leaves such updates out."
            )

    def evaluate(self) -> dict[str, Any] | None:
        """Loss and accuracies over every sample of the evaluation split once; None when asked to stop meanwhile."""
        started, meter, total = time.perf_counter(), Meter(self.parallel), Sums()
        self.parallel.share_buffers(self.model)
        model = self.parallel.evaluated(self.model)
        model.eval()
        with torch.no_grad():
            for number, batch in enumerate(self.evaluation.epoch(0), 1):
                if batch.count:
                    with self.precision.autocast():
                        logits = model(batch.inputs)
                        loss = self.loss(logits, batch.targets)
                    meter.add(loss, logits, batch.targets, batch.count)
                meter.note_corrupt(len(batch.corrupt))
                self.reporter.corrupt(batch.corrupt)
                self.heartbeat.beat()
                if number % EVALUATION_INTERVAL == 0 or number == self.evaluation.updates:
                    sums, flags = meter.collect(**self._stop_flags())
                    total.add(sums)
                    self._hear(flags)
                    if self.stopped is not None and number < self.evaluation.updates:
                        return None
        self.progress.corrupt += int(total.corrupt)
        seconds = time.perf_counter() - started
        return {"val_seconds": seconds, **total.means("val"), "val_samples": int(total.count)}

    def prime(self) -> None:
        """Let the strategy's wrapper settle by steps that leave no trace."""
        state, buffers = get_state(), [(b, b.clone()) for b in self.model.buffers()]

        def throw_away() -> None:
            self.model.train()
            self.backward(self.train.example(), last=True)
            self.optimizer.zero_grad()

        self.parallel.prime(throw_away)
        with torch.no_grad():
            for buffer, before in buffers:
                buffer.copy_(before)
        set_state(state)

    def _updates(self, batches: Iterator[Batch]) -> Iterator[list[Batch]]:
        while update := list(islice(batches, self.settings.grad_accumulation)):
            yield update

    def _last_step_of_epoch(self) -> int:
        rest = self.train.updates - self.progress.epoch_step
        return min(self.progress.step + rest, self.settings.total_steps)

    def _stop_flags(self) -> dict[str, float]:
        return {s.name: float(self.heartbeat.stop_signal == s) for s in STOP_SIGNALS}

    def _hear(self, flags: dict[str, float]) -> None:
        self.stopped = next((s for s in STOP_SIGNALS if flags[s.name]), None)
