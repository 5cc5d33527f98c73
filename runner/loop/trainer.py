"""The only training loop, for any backend: differences are hidden behind the bases of parallel and precision."""

import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from itertools import islice

import torch

from manyheads.runner.data.rank.batches import Batch
from manyheads.runner.data.rank.build_data import Loaders
from manyheads.runner.data.rank.loader import Loader
from manyheads.runner.loop.evaluation import Evaluation
from manyheads.runner.loop.log_windows import LogRow, LogWindow, LogWindows
from manyheads.runner.loop.monitor import Monitor
from manyheads.runner.loop.non_finite import NotFinite
from manyheads.runner.loop.observers.observer import Observer, overriding
from manyheads.runner.loop.progress import Progress
from manyheads.runner.loop.reporter import Reporter
from manyheads.runner.loop.train_settings import Stop, TrainSettings
from manyheads.runner.loop.update import Update, UpdateResult
from manyheads.runner.run.heartbeat import Heartbeat
from manyheads.runner.run.json_types import Numbers

LONGEST_WINDOW = 50  # updates; samples.csv has a row for each window


class Trainer:
    """Trains one rank's model. ``stop``: whether, and by which signal, the run was stopped early.

    ``settings``: may be replaced between two calls of ``fit``. ``observers``: what counts, times and records updates,
    in order.
    """

    def __init__(
        self,
        update: Update,
        loaders: Loaders,
        settings: TrainSettings,
        reporter: Reporter,
        heartbeat: Heartbeat,
        monitor: Monitor,
        observers: Sequence[Observer] = (),
    ):
        self.update, self.train, self.settings = update, loaders.train, settings
        self.reporter, self.heartbeat, self.monitor = reporter, heartbeat, monitor
        self.progress, self.stop = Progress(), Stop(heartbeat)
        self.observers: list[Observer] = []
        self.windows = LogWindows(update.parallel, update.scores, self.observers)
        self.evaluation = self._evaluation(loaders.val)
        self.test = None if loaders.test is None else self._evaluation(loaders.test)
        self._observe(observers)

    def _evaluation(self, loader: Loader) -> Evaluation:
        watch = self.reporter, self.heartbeat, self.stop
        return Evaluation(self.update, loader, *watch, observers=self.observers)

    def _observe(self, observers: Sequence[Observer]) -> None:
        self.observers[:] = observers  # a list that others have
        self._before_update = overriding(Observer.before_update, observers)
        self._updated = overriding(Observer.updated, observers)

    @contextmanager
    def observed(self, observer: Observer) -> Iterator[None]:
        """A context with one more observer, the last one."""
        before = [*self.observers]
        self._observe([*before, observer])
        try:
            yield
        finally:
            self._observe(before)

    # -- the run -------------------------------------------------------------------------------------

    def fit(self, save: Callable[..., None], *, due_after_step: Callable[[int], bool]) -> None:
        """Train until all updates are done, or a signal asks to stop. Raises FloatingPointError for a NaN loss.

        save: writes a checkpoint if one is due, when called with ``best``; due_after_step: whether one is, by a step's
        number.
        """
        self.reporter.start(self.progress, total=self.settings.last_step)
        while not self.done and self.stop.signal is None:
            self.train_epoch(save, due_after_step)
            if self.stop.signal is None and not self.is_cut:
                self.end_epoch(save)
        if self.stop.signal is not None or self.is_cut:
            self.settle()
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
        progress, settings = self.progress, self.settings
        last = settings.last_step_of_epoch(progress, self.train.updates)
        progress.started = progress.started or time.time()
        self.reporter.phase(progress)
        if settings.owes_evaluation(progress, self.train.updates) and not self.evaluate_within(save):
            return
        self.update.enter_epoch(progress.epoch)
        epoch = self.train.epoch(progress.epoch, progress.epoch_step, continues=last < settings.last_step)
        updates, left = self.updates(epoch), max(0, last - progress.step)
        self.windows.clock.resume()
        with ExitStack() as observed:
            for observer in self.observers:
                observed.enter_context(observer.training(left))
            for batches in islice(self.windows.clock.waiting(updates), left):
                self.make(batches, last=last)
                step = progress.step
                if (every := settings.evaluate_steps) and step % every == 0 and step != last:
                    self.collect_all()
                    if self.stop.signal is None and progress.ended is None and self.evaluate_within(save):
                        self.update.enter_training()
                    self.windows.clock.resume()
                elif due_after_step(step):
                    self.collect_all()
                    self.settle()
                    save(best=False)
                    self.windows.clock.resume()
                if self.stop.signal is not None or progress.ended is not None:
                    self.collect_all()
                    return

    def make(self, batches: list[Batch], *, last: int) -> None:
        """Make one update of these micro-batches, count it and log it. ``last``: the number of the epoch's last one."""
        windows, step = self.windows, self.progress.step + 1
        is_logged = step % self.settings.log_every == 0 or step == last
        for before_update in self._before_update:
            before_update(windows.clock.now)
        result = self.update(batches, number=step - 1, wants_norm=is_logged)
        self.count(batches, result)
        self.heartbeat.beat()
        self.reporter.display.update(step)
        if is_logged:
            windows.close(LogRow(step, self.update.schedule.lr, result.norm, time.time()))
        elif windows.updates == LONGEST_WINDOW:
            windows.close()
        if windows.is_due or step == last:
            self.collect(complete=step == last)

    def end_epoch(self, save: Callable[..., None]) -> None:
        """Evaluate if it is time, write the epoch's row, and leave a checkpoint."""
        progress, parallel = self.progress, self.update.parallel
        is_last = self.settings.is_last_epoch(progress)
        self.settle()
        if progress.epoch == 0:
            seen = {**progress.sums.statistics, "samples": torch.tensor(progress.sums.count)}
            if (warning := self.update.scores.task.check_epoch(seen)) is not None:
                self.reporter.display.say(warning)
            if (rounding := self.train.rounding) > 0:
                self.reporter.display.say(
                    f"float64 inputs are rounded to float32, by up to {rounding:.0e} of the spread of a feature's "
                    "values. precision=fp64 would keep them."
                )
        wanted = self.settings.evaluates_epoch(progress)
        for observer in self.observers:
            observer.epoch_trained(progress, is_last=is_last, train=self.train)
        measured = self.evaluate() if wanted else {}
        if measured is None:
            return
        slowest = torch.tensor([progress.seconds], dtype=torch.float64, device=parallel.device)
        seconds = parallel.reduce(slowest, "max").item()
        row, is_best = self.reporter.epoch(progress, seconds, measured)
        self.monitor.evaluated(row, progress)
        for observer in self.observers:
            observer.epoch_ended(row)
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
        self.settle()
        progress.evaluation_seconds += measured["val_seconds"] or 0.0
        save(best=is_best)
        return True

    def evaluate(self) -> Numbers | None:
        """The val_ columns over the whole evaluation split; None if asked to stop meanwhile."""
        self.reporter.phase(self.progress, evaluates=True)
        with ExitStack() as evaluated:
            for observer in self.observers:
                evaluated.enter_context(observer.evaluating())
            measured = self.evaluation.run()
        if measured is None:
            return None
        columns, left_out = measured
        self.progress.corrupt += left_out
        return columns

    def close(self) -> None:
        """Complete the files, and undo the run's changes to torch itself."""
        self.reporter.close()
        self.update.precision.close()
        for observer in self.observers:
            observer.close()
        for loader in (self.train, self.evaluation.loader, *(() if self.test is None else (self.test.loader,))):
            loader.close()

    def updates(self, batches: Iterator[Batch]) -> Iterator[list[Batch]]:
        """The micro-batches of each update."""
        while update := list(islice(batches, self.settings.grad_accumulation)):
            yield update

    # -- results -------------------------------------------------------------------------------------

    def count(self, batches: list[Batch], result: UpdateResult) -> None:
        """Count an update that was made or skipped, and tell the observers."""
        progress = self.progress
        self.windows.add(batches, result)
        progress.skipped += result.rejection is not None
        progress.step += 1
        progress.epoch_step += 1
        for updated in self._updated:
            updated(progress, batches, result)

    def collect(self, *, complete: bool) -> None:
        """Exchange the closed windows, report them, and find out whether a rank was asked to stop.

        ``complete``: with statistics, which may otherwise follow later. Raises FloatingPointError for a NaN loss.
        """
        ending = self.settings.ending
        windows, flags = self.windows.collect(self.stop.flags() | ending.flags(self.progress), complete=complete)
        self.stop.apply(flags)
        ending.apply(flags, self.progress)
        last = self.progress.step - self.windows.updates - sum(window.updates for window in windows)
        for window in windows:
            last += window.updates
            for observer in self.observers:
                observer.window_exchanged(self.progress, window)
            self._report(window, last)
        for observer in self.observers:
            observer.exchanged(self.progress, self.windows.meter.by_rank)
        self.windows.clock.logged()

    def collect_all(self) -> None:
        """Bring the progress up to date with training, even in the middle of a window."""
        self.windows.close()
        self.collect(complete=True)

    def settle(self) -> None:
        """Let observers complete what they record of the updates so far; at checkpoints and at the ends of epochs."""
        for observer in self.observers:
            observer.settled(self.progress)

    def _report(self, window: LogWindow, last: int) -> None:
        """Report a window that ends with update ``last``. Raises NotFinite."""
        sums, lap, row, updates = window
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
