"""The only training loop. It knows no backend: what differs hides behind the bases of parallel and precision."""

import time
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

import torch
from torch import Tensor

from runner.data.batches import Batch
from runner.data.loader import Loader
from runner.evaluation import Evaluation
from runner.heartbeat import Heartbeat
from runner.intervals import Intervals, Row
from runner.progress import Progress
from runner.replica import Replica
from runner.reporter import Reporter
from runner.rng import get_state, set_state
from runner.stop import Stop


class Trainer(Replica):
    """Trains one rank's replica. ``stop``: says whether, and by which signal, the run was ended early.

    ``replica``: what Replica takes.
    """

    def __init__(self, *, train: Loader, evaluation: Loader, reporter: Reporter, heartbeat: Heartbeat, **replica: Any):
        super().__init__(**replica)
        self.train, self.reporter, self.heartbeat = train, reporter, heartbeat
        self.progress = Progress()
        self.stop = Stop(heartbeat)
        self.intervals = Intervals(
            parallel=self.parallel,
            breakdown=self.breakdown,
            reporter=reporter,
            stop=self.stop,
            log_every=self.settings.log_every,
        )
        self.evaluation = Evaluation(
            model=self.model,
            loss=self.loss,
            loader=evaluation,
            parallel=self.parallel,
            precision=self.precision,
            reporter=reporter,
            heartbeat=heartbeat,
            stop=self.stop,
        )

    # -- the run -------------------------------------------------------------------------------------

    def fit(self, save: Callable[..., None], *, due_after_step: Callable[[int], bool]) -> None:
        """Train until all updates are done, or a signal asks to stop. Raises FloatingPointError for a NaN loss.

        save: writes a checkpoint if one is due, when called with ``best``; due_after_step: says so of a step.
        """
        self.reporter.start(self.progress, total=self.settings.last_step)
        save = self.timed(save)
        while not self.done and self.stop.signal is None:
            self.train_epoch(save, due_after_step)
            if self.stop.signal is None and not self.is_cut:
                self.end_epoch(save)
        if self.stop.signal is not None or self.is_cut:
            save(best=False)

    @property
    def done(self) -> bool:
        progress = self.progress
        return self.is_cut or (progress.step >= self.settings.last_step and progress.epoch_step == 0)

    @property
    def is_cut(self) -> bool:
        """Whether the run ends here in the middle of an epoch, as if it had been interrupted."""
        progress, settings = self.progress, self.settings
        at_end = progress.step == settings.last_step < settings.total_steps
        return at_end and 0 < progress.epoch_step < self.train.updates

    def train_epoch(self, save: Callable[..., None], due_after_step: Callable[[int], bool]) -> None:
        """The rest of the current epoch, from where the progress says on."""
        progress, intervals, last = self.progress, self.intervals, self._last_step_of_epoch()
        progress.started = progress.started or time.time()
        self.model.train()
        batches = self.train.epoch(progress.epoch, progress.epoch_step)
        intervals.clock.resume()
        self.breakdown.enter_epoch()
        for update in islice(intervals.clock.waiting(self.updates(batches)), max(0, last - progress.step)):
            is_logged = (progress.step + 1) % self.settings.log_every == 0 or progress.step + 1 == last
            take = self.update if intervals.clock.now < self.breakdown.next else self.watched_update
            norm = take(update, wants_norm=is_logged)
            progress.step += 1
            progress.epoch_step += 1
            self.heartbeat.beat()
            self.reporter.update(progress.step)
            if is_logged:
                intervals.close(Row(progress.step, self.schedule.lr, norm))
                if intervals.is_due or progress.step == last:
                    intervals.collect(progress, whole=progress.step == last)
            if due_after_step(progress.step):
                intervals.complete(progress)
                save(best=False)
                intervals.clock.resume()
            if self.stop.signal is not None:
                intervals.complete(progress)
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
        progress.end_epoch(seconds, evaluation=measured.get("val_seconds", 0.0))
        save(best=is_best)

    def timed(self, save: Callable[..., None]) -> Callable[..., None]:
        """The same, with its time noted."""

        def noted(*, best: bool) -> None:
            start = time.perf_counter()
            save(best=best)
            self.progress.checkpoint_seconds += time.perf_counter() - start

        return noted

    # -- one update ----------------------------------------------------------------------------------

    def update(self, batches: list[Batch], *, wants_norm: bool) -> Tensor | float:
        """Forward and backward of each micro-batch, then one step; returns the gradient norm where it is wanted."""
        before = self.kept_buffers()
        outputs = self.accumulate(batches, self.progress.step)
        norm, is_skipped = self.step(before, wants_norm=wants_norm)
        self.note(batches, outputs, is_skipped=is_skipped)
        return norm

    def watched_update(self, batches: list[Batch], *, wants_norm: bool) -> Tensor | float:
        """The same, with a look at where its time goes."""
        self.breakdown.start()
        norm = self.update(batches, wants_norm=wants_norm)
        self.breakdown.end()
        return norm

    def note(self, batches: list[Batch], outputs: list[tuple[Tensor, Tensor]], *, is_skipped: bool) -> None:
        """Count what the update was made of."""
        for batch, (loss, logits) in zip(batches, outputs, strict=True):
            if batch.count and not is_skipped:
                self.intervals.meter.add(loss, logits, batch.targets, batch.count)
            if batch.corrupt:
                self.intervals.meter.note_corrupt(len(batch.corrupt))
                self.reporter.corrupt(batch.corrupt)
        self.progress.skipped += is_skipped

    # -- between updates -----------------------------------------------------------------------------

    def evaluate(self) -> dict[str, Any] | None:
        """The val_ columns over the whole evaluation split; None when asked to stop meanwhile."""
        measured = self.evaluation.run()
        if measured is None:
            return None
        columns, corrupt = measured
        self.progress.corrupt += corrupt
        return columns

    def prime(self) -> None:
        """Let the strategy's wrapper settle by steps that leave no trace."""
        state, before = get_state(), [b.clone() for b in self.model.buffers()]

        def throw_away() -> None:
            self.model.train()
            self.backward(self.train.example(), last=True, used=False)
            self.precision.zero_grad(self.optimizer)

        self.parallel.prime(throw_away)
        self.restore_buffers(before)
        set_state(state)

    def updates(self, batches: Iterator[Batch]) -> Iterator[list[Batch]]:
        """The micro-batches of each update."""
        while update := list(islice(batches, self.settings.grad_accumulation)):
            yield update

    def _last_step_of_epoch(self) -> int:
        rest = self.train.updates - self.progress.epoch_step
        return min(self.progress.step + rest, self.settings.last_step)
