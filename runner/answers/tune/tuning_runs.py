"""The runs of a tuning: read from the ledger, or started, with the config and the time limit of each.

A proof shows that a timed configuration can also train: updates, an evaluation and a checkpoint. Timed updates alone do
not show whether memory suffices for an evaluation, or for larger inputs later.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from statistics import median
from typing import Any

from manyheads.launchers.job import TRAIN
from manyheads.runner.answers.measure.arm_configs import TRIAL_UPDATES, examined, timed
from manyheads.runner.answers.measure.pace_task import BATCH_STATISTICS
from manyheads.runner.answers.measure.rounds import trial_of, updates_of
from manyheads.runner.answers.measure.rows import COMPLETED, FACTS, FAILED, FLOOR, TRIAL, RunRow
from manyheads.runner.answers.measure.runs import Purpose, Runs
from manyheads.runner.answers.measure.subject import RANK, measured, without_trackers
from manyheads.runner.answers.tune.budget import Budget, arm_of, log_seconds
from manyheads.runner.answers.tune.race import BASE, Variant
from manyheads.runner.answers.tune.trial import SAME, SHARES, Trial, gradients_of
from manyheads.runner.config.candidates import startup_of
from manyheads.runner.option.run_config import RunConfig
from manyheads.runner.option.tree import Section
from manyheads.runner.run.files import remove
from manyheads.runner.run.run_folder import RunFolder

# A run has failed after PATIENCE times the seconds of one of the user's own configuration, plus LEAST_PATIENCE seconds
# or the fraction LONGEST of the budget, whichever is less.
PATIENCE = 10
LEAST_PATIENCE, LONGEST = 120.0, 0.1
LIMITS = Purpose("limits", RANK, lambda folder: None, lambda folder, result: {"floors": result["floors"]})
SHARE = 0.01  # fraction of the budget for the updates of one proof; its evaluation has equally many batches


def updates_of_proof(budget: float, seconds: float, per_epoch: int) -> int:
    """The number of updates in a proof. ``budget``: in seconds; ``seconds``: per update."""
    return max(1, int(min(per_epoch, SHARE * budget / seconds)))


def needing_most(run: RunConfig, updates: int) -> RunConfig:
    """The run with one epoch of this many updates and the highest memory use: full-size images, nothing frozen."""
    return without_trackers(
        run,
        trainer={
            "limit_train": updates,
            "limit_val": updates,
            "stop_after": updates,
            "evaluate_every": 1,
            "resize_from": None,
        },
        checkpoint={"every": "1epoch", "keep": 0, "keep_every": 0, "keep_hours": 0, "mirror": None},
        parameters={"freeze_epochs": []},
    )


def _read(folder: RunFolder, result: Mapping[str, Any]) -> Mapping[str, Any]:
    remove(folder.checkpoints)
    return {"metrics": result["metrics"]}


PROOF = Purpose("proof", TRAIN, lambda folder: None, _read)


@dataclass
class TuningRuns:
    """The runs of a tuning. ``run``: composes a configuration. ``budget``: counts each run that is read or started."""

    runs: Runs
    run: Callable[[Variant], RunConfig]
    budget: Budget

    def start(self, purpose: Purpose, variant: Variant, round: int = 0, turn: int = 0) -> RunRow:
        """The row of the run: from the ledger if it has ended before, otherwise after starting it."""
        asked = (purpose.name, arm_of(variant), round, turn)
        for row in self.runs.ledger.rows():
            if (row.purpose, row.arm, row.round, row.place) == asked and row.state in (COMPLETED, FAILED):
                break
        else:
            row = self.runs.start(
                self._config(purpose.name, variant), purpose, arm=arm_of(variant), round=round, turn=turn
            )
        self.budget.count([row])
        return row

    def _config(self, purpose: str, variant: Variant) -> Section:
        if purpose == FACTS:
            return examined(self.run(variant).written, FACTS)
        per_epoch = self.facts["per_epoch"]
        if purpose == LIMITS.name:
            config = measured(self.run(variant)).written
        elif purpose == PROOF.name:
            config = needing_most(self.run(variant), self._updates_of_proof(per_epoch)).written
        else:
            updates = TRIAL_UPDATES if purpose == TRIAL else self.updates()
            config = timed(self.run(variant).written, updates=updates, per_epoch=per_epoch)
        if variant == BASE or config["launcher"]["timeout"] is not None:
            return config
        return {**config, "launcher": {**config["launcher"], "timeout": self._patience(purpose, variant) / 60}}

    def _patience(self, purpose: str, variant: Variant) -> float:
        """Seconds after which a run has failed; equal for all runs that should take equally long."""
        beside = self.seconds_of_proof if purpose == PROOF.name else 0.0
        floor = median(row.duration for row in self.runs.ledger.rows() if row.purpose == FLOOR)
        longer = 2 * sum(map(startup_of, variant))
        return PATIENCE * (floor + beside) + max(longer, min(LEAST_PATIENCE, LONGEST * self.budget.total))

    @property
    def facts(self) -> Mapping[str, Any]:
        """What the user's own configuration computes on: the findings of its FACTS run."""
        return next(row.findings for row in self.runs.ledger.rows() if row.purpose == FACTS)

    def trial(self, variant: Variant) -> Trial:
        """The examination of a configuration."""
        return Trial(self.runs, arm_of(variant), self.run(BASE), self.run(variant))

    def updates(self) -> int:
        """The number of updates that a run times; equal for all configurations."""
        return updates_of(self.runs.ledger.rows())

    @property
    def seconds_of_timed(self) -> float:
        """The seconds of a timed run of the user's own configuration, estimated from the trial run."""
        trial = trial_of(self.runs.ledger.rows())
        return float(trial.duration + (self.updates() / trial.findings["updates"] - 1) * trial.findings["seconds"])

    @property
    def seconds_of_proof(self) -> float:
        """The most seconds of a proof as fast as the user's own: for its updates, and as many batches of evaluation."""
        return 2 * SHARE * self.budget.total

    def _updates_of_proof(self, per_epoch: int) -> int:
        floor = [math.exp(log_seconds(row)) for row in self.runs.ledger.rows() if row.purpose == FLOOR]
        return updates_of_proof(self.budget.total, median(floor), per_epoch)


@dataclass
class NumericsClasses:
    """Configurations with the same signature, the settings that determine the class, are assumed to share it."""

    runs: TuningRuns
    _by_signature: dict[tuple[object, ...], str | None] = field(default_factory=dict)

    def expected(self, candidate: Variant) -> str | None:
        """The class as it was noted for a candidate with the same signature, or as options declare it."""
        signature = self._signature(candidate)
        if signature not in self._by_signature:
            name = self.runs.trial(candidate).expected
            # Batches are sharded, but there is no BatchNorm that would notice.
            name = SAME if name == SHARES and not self.runs.facts[BATCH_STATISTICS] else name
            if signature == self._signature(BASE):  # a refused one says nothing about others with it
                return name
            self._by_signature[signature] = name
        return self._by_signature[signature]

    def note(self, candidate: Variant, name: str | None) -> None:
        """Note the class from a comparison of updates; None if the candidate may not be chosen."""
        signature = self._signature(candidate)
        if name is not None or signature != self._signature(BASE):
            self._by_signature[signature] = name

    def _signature(self, variant: Variant) -> tuple[object, ...]:
        """All settings that determine the class of numerics, as far as options declare what they do."""
        run = self.runs.run(variant)
        shares = run.data_shares, run.parallel.sync_batchnorm, run.trainer.grad_accumulation
        return run.precision.name, *shares, gradients_of(run)
