"""The run configs of two arms whose updates are compared, and what is changed in a config before it is measured."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from manyheads.runner.answers.measure.pace_task import WARM_UP
from manyheads.runner.answers.measure.rows import EXACT, FACTS
from manyheads.runner.config.lookup import CONF, read
from manyheads.runner.option.run_config import RunConfig
from manyheads.runner.option.tree import Section
from manyheads.runner.run.yaml_text import flatten

TRIAL_UPDATES = 10
UNSET = "unset"


@dataclass(frozen=True)
class ArmConfigs:
    """Base's run config and the changed one.

    ``tolerances``: three relative differences that their options explain: by rounding; by what the change asks for; and
    by BatchNorm, 0 unless the change shards batches differently. ``changes_code``: whether base runs other code, too.
    """

    base: Section
    changed: Section
    tolerances: Sequence[float]
    changes_code: bool = False

    @classmethod
    def of(cls, base: RunConfig, change: RunConfig) -> "ArmConfigs":
        """The configs of two runs that have the same code."""
        return cls(dict(base.written), dict(change.written), tolerances_of(base, change))

    def differences(self) -> dict[str, list[Any]]:
        """The values of both, by key, for keys in which they differ; UNSET if a config lacks the key."""
        one, other = flatten(self.base), flatten(self.changed)
        keys = [*one, *(key for key in other if key not in one)]
        return {key: [one.get(key, UNSET), other.get(key, UNSET)] for key in keys if one.get(key) != other.get(key)}

    @property
    def changes_precision(self) -> bool:
        """Whether the change asks for another precision."""
        return bool(self.base["precision"] != self.changed["precision"])

    @property
    def changes_only_precision(self) -> bool:
        """Whether both arms are the same but for the precision that the change asks for."""
        others = (self.base.keys() | self.changed.keys()) - {"precision"}
        is_same = all(self.base.get(key) == self.changed.get(key) for key in others)
        return self.changes_precision and is_same and not self.changes_code


def tolerances_of(base: RunConfig, change: RunConfig) -> list[float]:
    """The ``tolerances`` of ArmConfigs, as the options of both runs declare them."""
    rounding, other = (max(arm.precision.tolerance, arm.parallel.tolerance) for arm in (base, change))
    shares = [(arm.data_shares, arm.parallel.sync_batchnorm) for arm in (base, change)]
    return [rounding, max(rounding, other), 0.0 if shares[0] == shares[1] else change.parallel.tolerance_of_shares]


def unobserved(config: Section) -> dict[str, Any]:
    """The config without trackers, checkpoints and their mirror."""
    return {**config, "logger": {}, "checkpoint": {**config["checkpoint"], "every": "0", "mirror": None}}


def examined(config: Section, purpose: str) -> Section:
    """The config of a run that is examined, ``purpose`` being FACTS, STEPS or EXACT."""
    config = unobserved(config)
    if purpose == EXACT:
        return {**config, "precision": read(CONF / "precision" / "fp64.yaml")}
    return {**config, "trainer": {**config["trainer"], "compile": "none"}} if purpose == FACTS else config


def timed(config: Section, *, updates: int, per_epoch: int) -> Section:
    """The config of a run that times this number of updates. ``per_epoch``: the updates in one of its epochs."""
    config, last = unobserved(config), WARM_UP + updates
    trainer = {**config["trainer"], "evaluate_every": 0, "stop_after": last, "test": False}
    if trainer["epochs"] is not None:
        trainer["epochs"] = max(trainer["epochs"], math.ceil(last / per_epoch))
    if trainer["max_steps"] is not None:
        trainer["max_steps"] = max(trainer["max_steps"], last)
    return {**config, "trainer": trainer, "checkpoint": {**config["checkpoint"], "monitor": "auto"}}
