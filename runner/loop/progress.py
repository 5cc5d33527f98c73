"""The progress of a run: all that a checkpoint must hold besides weights and optimizer."""

from dataclasses import asdict, dataclass, field

from manyheads.runner.loop.clock import Lap
from manyheads.runner.loop.meter import Sums, parts
from manyheads.runner.run.checkpoint_places import StateDict
from manyheads.runner.run.json_types import Numbers, ScoresJson


@dataclass
class Progress:
    """Counts over all sessions of a run. ``epoch``: the number of complete epochs, evaluation included."""

    epoch: int = 0
    epoch_step: int = 0  # updates of the current epoch; all of them while its evaluation is still to come
    step: int = 0
    samples: int = 0
    corrupt: int = 0
    skipped: int = 0
    started: float = 0.0  # the current epoch's, in seconds since 1970
    seconds: float = 0.0  # of training in the current epoch
    train_seconds: float = 0.0
    checkpoint_seconds: float = 0.0  # since the last epoch's row
    spent: dict[str, float] = field(default_factory=dict)  # seconds of each part, in complete epochs
    timed_samples: float = 0.0  # those that count for the throughput
    timed_seconds: float = 0.0
    interval: Sums = field(default_factory=Sums)
    sums: Sums = field(default_factory=Sums)  # of the current epoch
    metrics: Numbers = field(default_factory=dict)
    best: Numbers | None = None
    evaluated: int = 0  # the update after which the last evaluation was
    evaluation_seconds: float = 0.0  # of evaluations within the current epoch
    scores: ScoresJson = field(default_factory=ScoresJson)  # the description of what was measured
    record: float | None = None  # for trainer.patience: the best value of the monitored metric so far
    waited: int = 0  # evaluations in a row that did not improve it
    ended: str | None = None  # the key that ended the run before its last epoch

    def count(self, sums: Sums, lap: Lap) -> None:
        """Count a window of updates. ``sums``: of all ranks; ``lap``: this rank's times."""
        self.samples += int(sums.count)
        self.corrupt += int(sums.corrupt)
        self.seconds += lap.seconds
        if lap.is_warm:
            self.timed_samples += sums.count
            self.timed_seconds += lap.seconds
        self.interval.add(sums)
        self.sums.add(sums)

    def end_epoch(self, seconds: float, *, evaluation: float) -> None:
        """Count a complete epoch. ``seconds``: of its training on the slowest rank."""
        self.spent = self.time(seconds, evaluation=evaluation)
        self.checkpoint_seconds = self.evaluation_seconds = 0.0
        self.train_seconds += seconds
        self.epoch += 1
        self.epoch_step = 0
        self.started = self.seconds = 0.0
        self.sums = Sums()

    @property
    def samples_per_second(self) -> float | None:
        """Samples per second of training, without warm-up; with warm-up if there was nothing else."""
        if self.timed_seconds:
            return self.timed_samples / self.timed_seconds
        total = self.train_seconds + self.seconds
        return self.samples / total if total else None

    def time(self, seconds: float, *, evaluation: float = 0.0) -> dict[str, float]:
        """Seconds of each part in all epochs; in the current one training took ``seconds``."""
        evaluation += self.evaluation_seconds
        now = parts(self.sums, seconds) | {"evaluation": evaluation, "checkpoint": self.checkpoint_seconds}
        return {part: self.spent.get(part, 0.0) + value for part, value in now.items()}

    def move_to(self, updates: int, *, before: int | None) -> None:
        """Count in epochs of ``updates`` updates. ``before``: of how many so far; None if the checkpoint does not say.

        An epoch that a limit cut short continues where it was cut. Raises ValueError in the middle of an epoch, the
        rest of which would have other samples.
        """
        if before is not None and self.epoch_step == 0:
            self.epoch, self.epoch_step = divmod(self.step, before)
        before = before or (self.step - self.epoch_step) // max(1, self.epoch) or updates
        if before == updates:
            return
        if self.epoch_step not in (0, before):
            raise ValueError(f"an epoch had {before} updates, and has {updates} now")
        if self.epoch_step:  # its evaluation is still to come
            self.epoch_step = updates
        self.step = self.epoch * updates + self.epoch_step

    def state_dict(self) -> StateDict:
        return asdict(self)

    @classmethod
    def from_state(cls, state: StateDict) -> "Progress":
        sums = {name: Sums(**state[name]) for name in ("interval", "sums")}
        return cls(**{**state, **sums})
