"""How long a run trains, when it evaluates, and why it may end early; the same on all ranks."""

import math
import signal
from dataclasses import dataclass

from manyheads.runner.checkpoint.retention import steps_of
from manyheads.runner.loop.progress import Progress
from manyheads.runner.machine.process import SIGNALS
from manyheads.runner.option.rules import seconds
from manyheads.runner.option.trainer_section import TrainerSection
from manyheads.runner.run.heartbeat import Heartbeat

MAX_TIME = "max_time"
PATIENCE = "patience"


@dataclass(frozen=True)
class Ending:
    """When a run ends early: ``trainer.max_time``, in seconds, ``trainer.patience`` and ``trainer.min_delta``.

    The decision is recorded in the progress, under the name of its key, and so in checkpoints.
    """

    max_time: float | None = None
    patience: int | None = None
    min_delta: float = 0.0

    def flags(self, progress: Progress) -> dict[str, float]:
        """Whether this rank's clock has passed the limit, as numbers to sum over ranks; empty without a limit.

        Training, evaluation and checkpoints of all sessions count.
        """
        if self.max_time is None:
            return {}
        return {MAX_TIME: float(sum(progress.time(progress.seconds).values()) >= self.max_time)}

    def apply(self, flags: dict[str, float], progress: Progress) -> None:
        """Receive ``flags`` summed over all ranks, which are the same on each of them."""
        if flags.get(MAX_TIME):
            progress.ended = MAX_TIME

    def evaluated(self, score: float | None, direction: str, progress: Progress) -> None:
        """Receive the monitored metric, the same on every rank; None if it was not measured."""
        if self.patience is None or score is None:
            return
        sign, record = (1 if direction == "max" else -1), progress.record
        if not math.isnan(score) and (record is None or sign * (score - record) > self.min_delta):
            progress.record, progress.waited = score, 0
            return
        progress.waited += 1
        if progress.waited >= self.patience:
            progress.ended = PATIENCE


NEVER = Ending()


class Stop:
    """Exchanges requests to stop, in reductions that are needed anyway. ``signal``: the agreed one, or None."""

    def __init__(self, heartbeat: Heartbeat):
        self._heartbeat = heartbeat
        self.signal: signal.Signals | None = None

    def flags(self) -> dict[str, float]:
        """The requests that this rank received, as numbers to be summed over ranks."""
        return {s.name: float(self._heartbeat.stop_signal == s) for s in SIGNALS}

    def apply(self, flags: dict[str, float]) -> None:
        """Receive ``flags`` summed over all ranks, which are the same on each of them."""
        self.signal = next((s for s in SIGNALS if flags[s.name]), None)


@dataclass(frozen=True)
class TrainSettings:
    """The part of the run config's trainer section that the loop needs.

    epochs: in which the schedule ends; total_steps: its length; limit: the key of trainer that decides both; last_step:
    where the run ends, at the latest with the schedule; warm_up: whether the first pass takes long, because it compiles
    the model or chooses a GPU's algorithms. evaluate_every: in epochs; evaluate_steps: in updates, 0 to evaluate by
    epochs.
    """

    epochs: int
    total_steps: int
    last_step: int
    evaluate_every: int
    grad_accumulation: int
    log_every: int
    warm_up: bool = False
    evaluate_steps: int = 0
    ending: Ending = NEVER
    limit: str = "epochs"

    @classmethod
    def of(cls, section: TrainerSection, updates: int) -> "TrainSettings":
        """The settings in the config's trainer section. ``updates``: of an epoch, also in the methods below."""
        total = section.steps_in(updates)
        steps = steps_of(section.evaluate_every) or 0
        return cls(
            epochs=section.epochs_in(updates),
            total_steps=total,
            limit="epochs" if section.epochs and section.epochs * updates == total else "max_steps",
            last_step=min(total, section.stop_after or total),
            evaluate_every=0 if steps else int(section.evaluate_every),
            evaluate_steps=steps,
            ending=Ending(seconds(section.max_time), section.patience, section.min_delta),
            grad_accumulation=section.grad_accumulation,
            log_every=section.log_every,
            warm_up=section.device == "cuda" or section.compile != "none",
        )

    def is_done(self, progress: Progress, updates: int) -> bool:
        """Whether nothing is left to train."""
        is_over = progress.step >= self.last_step or progress.ended is not None
        return self.cuts(progress, updates) or (is_over and progress.epoch_step == 0)

    def cuts(self, progress: Progress, updates: int) -> bool:
        """Whether the run ends here in the middle of an epoch, as if it had been interrupted."""
        at_end = progress.step == self.last_step < self.total_steps
        return at_end and progress.ended is None and 0 < progress.epoch_step < updates

    def last_step_of_epoch(self, progress: Progress, updates: int) -> int:
        """The number of the current epoch's last update in the run."""
        rest = updates - progress.epoch_step if progress.ended is None else 0
        return min(progress.step + rest, self.last_step)

    def is_last_epoch(self, progress: Progress) -> bool:
        """Whether the epoch that ends is the run's last."""
        return progress.step >= self.total_steps or progress.ended is not None

    def evaluates_epoch(self, progress: Progress) -> bool:
        """Whether the epoch that ends is evaluated; the last one always is, if any is."""
        if not (self.evaluate_every or self.evaluate_steps):
            return False
        if self.is_last_epoch(progress):
            return True
        if self.evaluate_steps:
            return progress.step % self.evaluate_steps == 0
        return (progress.epoch + 1) % self.evaluate_every == 0

    def owes_evaluation(self, progress: Progress, updates: int) -> bool:
        """Whether a run that is resumed was stopped right before an evaluation within its epoch."""
        is_within = 0 < progress.epoch_step < updates and progress.ended is None
        is_due = self.evaluate_steps and progress.step % self.evaluate_steps == 0
        return bool(is_within and is_due and progress.evaluated != progress.step)
