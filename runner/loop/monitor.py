"""The monitored number: what acts on it, what becomes of it, and what is said or refused where it has no value."""

from collections.abc import Callable, Sequence

from manyheads.runner.errors import ConfigurationError
from manyheads.runner.loop.progress import Progress
from manyheads.runner.loop.scores import Scores
from manyheads.runner.loop.train_settings import Ending
from manyheads.runner.run.json_types import Numbers, ScoresJson
from manyheads.runner.run.score_versions import unlike, version_of
from manyheads.runner.scheduler.rank.schedules import Schedule
from manyheads.runner.wording import listed


class Monitor:
    """Passes the monitored number of each evaluation to the schedule and to early stopping.

    ``readers``: what acts on it, in words; ``say``: prints a line, on rank 0.
    """

    def __init__(
        self,
        scores: Scores,
        schedule: Schedule,
        ending: Ending,
        *,
        readers: Sequence[str] = (),
        say: Callable[[str], None] = lambda line: None,
    ):
        self.scores, self.schedule, self.ending, self.readers, self.say = scores, schedule, ending, readers, say
        self._was_said = False

    def begin(self, progress: Progress, *, samples: int, evaluates: bool = True) -> None:
        """Before training: with ``samples`` validation samples, and after ``progress``, which may be recorded.

        ``evaluates``: whether any evaluation will follow.

        Forgets a best value, and sums within an epoch, of another definition. Raises ConfigurationError if nothing can
        be measured, and something acts on it.
        """
        if self.readers and not (samples and evaluates):
            reason = "there are no validation samples" if evaluates else "trainer.evaluate_every=0 never measures it"
            raise self._refusal(reason, {})
        now, column = self.scores.describe(), self.scores.monitor
        recorded = progress.scores or now
        if (difference := unlike(column, {"the checkpoint": recorded, "this run": now})) is not None:
            self.say(f"{difference} So the search for the best starts over.")
        if difference is not None or recorded.get("monitor") != column:
            progress.record, progress.waited = None, 0
            self.schedule.forget_best()
        if difference is not None:
            progress.best = None
        self._leave_out_other_sums(recorded, now, progress)
        progress.scores = now

    def _leave_out_other_sums(self, recorded: ScoresJson, now: ScoresJson, progress: Progress) -> None:
        """Leave out what the current epoch has summed by other definitions, to which nothing can be added."""
        columns = self.scores.names("train")
        changed = [column for column in columns if version_of(recorded, column) != version_of(now, column)]
        if changed and progress.epoch_step:
            for sums in (progress.sums, progress.interval):
                sums.leave_out_measured()
            of = f"epoch {progress.epoch + 1} {'is' if len(changed) == 1 else 'are'} measured from"
            done = f"update {progress.epoch_step + 1} of the epoch on: the checkpoint has sums of another definition."
            self.say(f"{listed(changed, len(changed))} of {of} {done}")

    def evaluated(self, row: Numbers, progress: Progress) -> None:
        """Receive the row of an epoch or an evaluation, the same on every rank; None for what was not measured.

        Raises ConfigurationError if it was evaluated, and has no value that something acts on.
        """
        score, samples = row[self.scores.monitor], row.get("val_samples")
        if score is None and samples is not None:
            self._missing(row, samples, progress)
        self.schedule.evaluated(score, self.scores.direction)
        self.ending.evaluated(score, self.scores.direction, progress)

    def _missing(self, row: Numbers, samples: float, progress: Progress) -> None:
        reason = (
            f"it cannot be computed from the model's outputs and the targets of these {samples:,.0f} validation samples"
            if samples
            else "no validation sample was evaluated"
        )
        refusal = self._refusal(reason, row)
        if self.readers and progress.best is None:
            raise refusal
        if not self._was_said:
            self.say(f"{refusal} Until then no epoch is the best, and there is no best.pt.")
            self._was_said = True

    def _refusal(self, reason: str, row: Numbers) -> ConfigurationError:
        """The error about a monitored number without a value. ``row``: what has one can be monitored instead."""
        monitor, columns = self.scores.monitor, [name for name in self.scores.names("val") if row.get(name) is not None]
        others = [reader for reader in self.readers if not reader.startswith("checkpoint.monitor")]
        acts = f" {listed(others, len(others))} need{'' if len(others) > 1 else 's'} it." if others else ""
        remedy = f"Set checkpoint.monitor={columns[0]}" if columns else "Set data.val_fraction=0.1"
        remedy += f", or leave out {'them' if len(others) > 1 else others[0]}." if others else "."
        return ConfigurationError.at(
            "checkpoint.monitor", monitor, f" has no value: {reason}.{acts} {remedy}", allowed=["auto", *columns]
        )
