"""A judgement of run configs: what their runs do before the rounds, and in them."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

from manyheads.launchers.job import TRAIN
from manyheads.runner.answers.judge.claims import UNDECIDED
from manyheads.runner.answers.judge.config_question import ConfigQuestion
from manyheads.runner.answers.judge.judgement import Judgement
from manyheads.runner.answers.judge.terms import FOUND, SIGNS, UNREACHED, VERSIONS, Aim
from manyheads.runner.answers.measure import purposes
from manyheads.runner.answers.measure.arm_configs import TRIAL_UPDATES
from manyheads.runner.answers.measure.examination import Examination
from manyheads.runner.answers.measure.rounds import updates_of
from manyheads.runner.answers.measure.rows import BASE, FACTS, FLOOR, ROUND, TRIAL, RunRow
from manyheads.runner.answers.measure.runs import Purpose, Runs
from manyheads.runner.errors import ConfigurationError
from manyheads.runner.option.tree import Section
from manyheads.runner.records.claims import direction
from manyheads.runner.records.load_run import Columns, read_columns
from manyheads.runner.run.json_types import ScoresJson, right
from manyheads.runner.run.run_folder import RunFolder
from manyheads.runner.run.score_versions import version_of

CHANGED_NUMERICS = (
    " To compare complete trainings of a change that computes something else on purpose: --on speed,<metric> "
    "--allow-changed-numerics."
)


@dataclass(frozen=True)
class ConfigJudgement(Judgement):
    """A judgement of two run configs."""

    runs: Runs
    question: ConfigQuestion

    @property
    def hint(self) -> str:
        return CHANGED_NUMERICS if self.question.is_about_speed else ""

    def examine(self) -> None:
        self.examination.run()
        if self.claims().verdict == UNDECIDED and self.question.is_about_speed and not self.completed(TRIAL, BASE):
            self.run(TRIAL, BASE)

    def examine_again(self) -> None:
        self.examination.start(purposes.facts(), BASE)  # the data may have changed since

    @property
    def examination(self) -> Examination:
        """The runs that show whether the arms can be compared."""
        return Examination(self.runs, self.question.configs, needs_same_steps=self.question.is_about_speed)

    def run(self, purpose: str, arm: str, round: int = 0, turn: int = 0) -> RunRow:
        config = self._config(purpose, arm, round, turn)
        return self.runs.start(config, self._work(purpose), arm=arm, round=round, turn=turn)

    def _work(self, purpose: str) -> Purpose:
        """What a run with this purpose does."""
        if purpose == TRIAL:
            return purposes.pace(TRIAL, TRIAL_UPDATES)
        if self.question.is_about_speed:
            return purposes.pace(purpose, self._updates())
        return training(purpose, self.question.aims)

    def _config(self, purpose: str, arm: str, round: int, turn: int) -> Section:
        facts = self.completed(FACTS, arm)
        per_epoch = facts[0].findings["per_epoch"] if facts else 1
        is_timed = self.question.is_about_speed and purpose in (FLOOR, ROUND)
        updates = TRIAL_UPDATES if purpose == TRIAL else self._updates() if is_timed else 0
        where = {"round": round, "turn": turn}
        return self.question.config(purpose, arm, **where, updates=updates, per_epoch=per_epoch)

    def _updates(self) -> int:
        """How many updates are timed."""
        return updates_of(self.runs.ledger.rows())


def training(name: str, aims: Sequence[Aim]) -> Purpose:
    """To train to the end, for metrics of the last evaluation and the seconds until targets were reached.

    Reading the result raises ConfigurationError if a metric is not finite.
    """

    def read(folder: RunFolder, result: Mapping[str, Any]) -> Mapping[str, Any]:
        epochs = read_columns(folder.epochs)
        signs, values, versions, unreached = {}, {}, {}, []
        for aim in aims:
            metric = aim.text if aim.target is None else aim.target[0]
            signs[aim.text] = 1 if not aim.is_training and direction(result, metric) == "max" else -1
            value: float | None
            if aim.is_training:
                value = sum(epochs["train_seconds"])
            elif aim.target is None or result["metrics"][metric] is None:
                value = result["metrics"][metric]
            elif (value := _seconds_to(aim.target[1], epochs, metric, sign=signs[aim.text])) is None:
                unreached.append(aim.text)
                value = UNREACHED * sum(epochs["train_seconds"])
            if value is None or not math.isfinite(value):
                what = "has no value" if value is None else f"is {value}"
                raise ConfigurationError(f"{metric} {what} after training. Set --on to another metric.", key="--on")
            values[aim.text] = value
            versions[aim.text] = version_of(right(result.get("scores") or {}, ScoresJson), metric)
        recorded = {key: result[key] for key in ("train_seconds", "weights_sha256")}
        return {FOUND: values, SIGNS: signs, VERSIONS: versions, "unreached": unreached, **recorded}

    return Purpose(name, TRAIN, lambda folder: None, read)


def _seconds_to(target: float, epochs: Columns, metric: str, *, sign: int) -> float | None:
    """Seconds of training after which an evaluation first reached the target; None if none did."""
    reached = [sign * value >= sign * target for value in epochs.get(metric, ())]
    total = [*accumulate(epochs["train_seconds"])]
    return total[reached.index(True)] if any(reached) else None
