"""The only training loop, for any backend: differences are hidden behind the bases of parallel and precision."""

import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from itertools import islice
from typing import Any

import torch

from manyheads.runner.callbacks.callback import Callback
from manyheads.runner.data.rank.batches import Batch
from manyheads.runner.data.rank.loader import Loader
from manyheads.runner.data.rank.taken import Taken
from manyheads.runner.loop.average import Average
from manyheads.runner.loop.evaluation import Evaluation
from manyheads.runner.loop.garbage import Garbage
from manyheads.runner.loop.log_windows import LogRow, LogWindow, LogWindows
from manyheads.runner.loop.monitor import Monitor
from manyheads.runner.loop.non_finite import NotFinite
from manyheads.runner.loop.progress import Progress
from manyheads.runner.loop.rank_times import RankTimes
from manyheads.runner.loop.reporter import Reporter
from manyheads.runner.loop.train_settings import Stop, TrainSettings
from manyheads.runner.loop.update import Update, UpdateResult
from manyheads.runner.machine import hardware
from manyheads.runner.run.heartbeat import Heartbeat
from manyheads.runner.run.json_types import Numbers
from manyheads.runner.run.model_description import Description

LONGEST_WINDOW = 50  # updates; at the end of a window all ranks may stop together


class Trainer:
    """Trains one rank's model. ``stop``: whether, and by which signal, the run was stopped early.

    ``describe``: the content of model.json, known once batches have arrived; ``average``: of the weights, if any;
    ``taken``: the record of which samples the updates took; ``readers``: what acts on the monitored number, in words.
    """

    def __init__(
        self,
        *,
        update: Update,
        train: Loader,
        evaluation: Loader,
        test: Loader | None = None,
        settings: TrainSettings,
        reporter: Reporter,
        heartbeat: Heartbeat,
        describe: Callable[[], Description],
        callbacks: Sequence[Callback] = (),
        average: Average | None = None,
        taken: Taken | None = None,
        readers: Sequence[str] = (),
    ):
        self.update, self.train, self.settings = update, train, settings
        self.describe = describe
        self.reporter, self.heartbeat, self.callbacks = reporter, heartbeat, callbacks
        self.average = average
        self.progress = Progress()
        self.stop = Stop(heartbeat)
        say, ending = reporter.display.say, settings.ending
        self.monitor = Monitor(update.scores, update.schedule, ending, readers=readers, say=say)
        self.garbage = Garbage()
        taken = taken or Taken(0, marks=False)
        self.windows = LogWindows(update.parallel, update.scores, breakdown=update.breakdown, taken=taken)
        device = update.parallel.device
        gpu = hardware.gpu_index(device.index) if device.type == "cuda" else None
        self.rank_times = RankTimes(update.parallel.world_size, gpu)
        watch: dict[str, Any] = {"reporter": reporter, "heartbeat": heartbeat, "stop": self.stop}
        self.evaluation = Evaluation(update=update, loader=evaluation, callbacks=callbacks, **watch)
        self.test = None if test is None else Evaluation(update=update, loader=test, callbacks=callbacks, **watch)

    # -- the run -------------------------------------------------------------------------------------

    def fit(self, save: Callable[..., None], *, due_after_step: Callable[[int], bool]) -> None:
        """Train until all updates are done, or a signal asks to stop. Raises FloatingPointError for a NaN loss.

        save: writes a checkpoint if one is due, when called with ``best``; due_after_step: whether one is, by a step's
        number.
        """
        self.reporter.start(self.progress, total=self.settings.last_step)
        while not self.done and self.stop.signal is None:
            with self.garbage:
                self.train_epoch(save, due_after_step)
            if self.stop.signal is None and not self.is_cut:
                self.end_epoch(save)
        if self.stop.signal is not None or self.is_cut:
            self.note_seen()
            save(best=False)

    @property
    def done(self) -> bool:
        """Whether nothing is left to train."""
        return self.settings.is_done(self.progress, self.train.updates)

    @property
    def is_cut(self) -> bool:
        """Whether the run ends here in the middle of an epoch, as if it had been interrupted."""
        return self.settings.cuts(self.progress, self.train.updates)

    def train_epoch(self, save: Callable[..., None], due_after_step: Callable[[int], bool]) -> None:
        """Train the rest of the current epoch, starting from the recorded progress."""
        progress, windows, last = (
            self.progress,
            self.windows,
            self.settings.last_step_of_epoch(self.progress, self.train.updates),
        )
        evaluates = self.settings.evaluate_steps
        progress.started = progress.started or time.time()
        self.reporter.phase(progress)
        if self.settings.owes_evaluation(progress, self.train.updates) and not self.evaluate_within(save):
            return
        self.update.enter_epoch(progress.epoch)
        epoch = self.train.epoch(progress.epoch, progress.epoch_step, continues=last < self.settings.last_step)
        batches = self.updates(epoch)
        windows.clock.resume()
        left = max(0, last - progress.step)
        self.update.breakdown.enter_epoch(left)
        for update in islice(windows.clock.waiting(batches), left):
            step = progress.step + 1
            is_logged = step % self.settings.log_every == 0 or step == last
            norm = self.make(update, wants_norm=is_logged)
            if is_logged:
                windows.close(LogRow(step, self.update.schedule.lr, norm, time.time()))
            elif windows.updates == LONGEST_WINDOW:
                windows.close()
            if windows.is_due or step == last:
                self.collect(whole=step == last)
            if evaluates and step % evaluates == 0 and step != last:
                self.collect_all()
                if self.stop.signal is None and progress.ended is None and self.evaluate_within(save):
                    self.update.enter_training()
                windows.clock.resume()
            elif due_after_step(step):
                self.collect_all()
                self.note_seen()
                save(best=False)
                windows.clock.resume()
            if self.stop.signal is not None or progress.ended is not None:
                self.collect_all()
                return

    def make(self, batches: list[Batch], *, wants_norm: bool) -> Any:
        """Make and count one update of these micro-batches; returns the norm of its gradients if it is needed."""
        breakdown = self.update.breakdown
        is_sampled = breakdown.is_due(self.windows.clock.now)
        if is_sampled:
            breakdown.start()
        made = self.update(batches, number=self.progress.step, wants_norm=wants_norm)
        self.count(batches, made)
        if self.average is not None and made.rejection is None:
            self.average.updated(self.progress.step)
        if is_sampled:
            breakdown.end()
        self.heartbeat.beat()
        self.reporter.display.update(self.progress.step)
        for callback in self.callbacks:
            callback.on_update(self.progress.step)
        return made.norm

    def end_epoch(self, save: Callable[..., None]) -> None:
        """Evaluate if it is time, write the epoch's row, and leave a checkpoint."""
        progress, parallel = self.progress, self.update.parallel
        is_last = self.settings.is_last_epoch(progress)
        self.note_seen()
        if progress.epoch == 0:
            seen = {**progress.sums.statistics, "samples": torch.tensor(progress.sums.count)}
            if (said := self.update.scores.task.check_epoch(seen)) is not None:
                self.reporter.display.say(said)
            if (rounding := self.train.rounding) > 0:
                self.reporter.display.say(
                    f"float64 inputs are rounded to float32, by up to {rounding:.0e} of the spread of a feature's "
                    "values. precision=fp64 would keep them."
                )
        wanted = self.settings.evaluates_epoch(progress)
        if self.average is not None:
            self.average.epoch_ended(progress.epoch, is_last=is_last, train=self.train)
        measured = self.evaluate() if wanted else {}
        if measured is None:
            return
        slowest = torch.tensor([progress.seconds], dtype=torch.float64, device=parallel.device)
        seconds = parallel.reduce(slowest, "max").item()
        row, is_best = self.reporter.epoch(progress, seconds, measured)
        self.monitor.evaluated(row, progress)
        for callback in self.callbacks:
            callback.on_epoch(row)
        progress.end_epoch(seconds, evaluation=measured.get("val_seconds") or 0.0)
        save(best=is_best)

    def evaluate_within(self, save: Callable[..., None]) -> bool:
        """Evaluate between two updates of an epoch, and leave a checkpoint; False if asked to stop meanwhile."""
        progress, measured = self.progress, self.evaluate()
        if measured is None:
            return False
        row, is_best = self.reporter.evaluation(progress, measured)
        self.monitor.evaluated(row, progress)
        progress.evaluated = progress.step
        self.note_seen()
        progress.evaluation_seconds += measured["val_seconds"] or 0.0
        save(best=is_best)
        return True

    def evaluate(self) -> Numbers | None:
        """The val_ columns over the whole evaluation split; None if asked to stop meanwhile."""
        self.reporter.phase(self.progress, evaluates=True)
        with self.average.in_place() if self.average is not None and self.average.is_evaluated else nullcontext():
            measured = self.evaluation.run()
        if measured is None:
            return None
        columns, corrupt = measured
        self.progress.corrupt += corrupt
        return columns

    def close(self) -> None:
        """Complete the files, and undo the run's changes to torch itself."""
        self.reporter.close()
        self.update.precision.close()
        for callback in self.callbacks:
            callback.close()
        for loader in (self.train, self.evaluation.loader, *(() if self.test is None else (self.test.loader,))):
            loader.close()

    def updates(self, batches: Iterator[Batch]) -> Iterator[list[Batch]]:
        """The micro-batches of each update."""
        while update := list(islice(batches, self.settings.grad_accumulation)):
            yield update

    # -- results -------------------------------------------------------------------------------------

    def count(self, batches: list[Batch], made: UpdateResult) -> None:
        """Count an update that was made, its samples, and those that could not be read."""
        self.windows.add(made)
        for batch in batches:
            if batch.corrupt:
                self.windows.meter.note_corrupt(len(batch.corrupt))
                self.reporter.note_corrupt(batch.corrupt)
                self.reporter.taken.skip(self.progress.epoch, batch.corrupt)
        self.progress.skipped += made.rejection is not None
        self.progress.step += 1
        self.progress.epoch_step += 1
        if made.rejection is not None:  # on all ranks
            self.reporter.rejected(self.progress, made.rejection, made.passes)

    def collect(self, *, whole: bool) -> None:
        """Exchange the closed windows, report them, and find out whether a rank was asked to stop.

        ``whole``: with statistics, which may otherwise follow later. Raises FloatingPointError for a NaN loss.
        """
        ending = self.settings.ending
        windows, flags = self.windows.collect(self.stop.flags() | ending.flags(self.progress), whole=whole)
        self.stop.apply(flags)
        ending.apply(flags, self.progress)
        last = self.progress.step - self.windows.updates - sum(window.updates for window in windows)
        for window in windows:
            last += window.updates
            self._report(window, last)
        if warning := self.rank_times.add(self.windows.meter.by_rank):
            self.reporter.display.say(warning)
        if any(window.sums.corrupt for window in windows):  # on all ranks
            self.reporter.taken.skipped(self.progress.step)
        self.garbage.tick()
        self.windows.clock.logged()

    def collect_all(self) -> None:
        """Bring the progress up to date with training, even in the middle of a window."""
        self.windows.close()
        self.collect(whole=True)

    def note_seen(self) -> None:
        """Record which samples were taken since the last call; called at checkpoints and at the ends of epochs."""
        seen = self.windows.taken.flush(self.update.parallel)
        self.reporter.taken.seen(self.progress.epoch, self.progress.step, seen)

    def _report(self, window: LogWindow, last: int) -> None:
        """Report a window that ends with update ``last``. Raises NotFinite."""
        sums, lap, row, updates = window
        self.reporter.taken.add(self.progress.epoch, window)
        self.progress.count(sums, lap)
        if not math.isfinite(sums.whole_loss):
            step = self.progress.step if row is None else row.step
            raise NotFinite(
                f"the loss became {sums.whole_loss} between step {max(0, step - self.settings.log_every)} and step "
                f"{step}",
                "Lower optimizer.lr, add scheduler.warmup_epochs or trainer.clip_norm; "
                "trainer.detect_anomaly=true finds the operation, trainer.on_nan=skip skips such updates.",
                range(last - updates + 1, last + 1),
            )
        if row is not None:
            self.reporter.interval(self.progress, row)
