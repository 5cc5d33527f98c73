"""What is asked, fixed before the first run: both configs, the error rate, the draw. The first line of the ledger."""

import hashlib
import json
import math
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from manyheads.runner.errors import ConfigurationError
from manyheads.runner.judge.draw import seed
from manyheads.runner.judge.rows import BASE, FACTS, FLOOR, ROUND, TRIAL
from manyheads.runner.judge.sequential import TESTS
from manyheads.runner.judge.task import WARM_UP
from manyheads.runner.option.locate import Section

FORMAT = 1
SPEED = "speed"
TARGET = re.compile(r"seconds to (\w+)=(-?\d+(?:\.\d+)?)")
TRIAL_UPDATES = 10
FLOOR_ROUNDS = 5


@dataclass(frozen=True)
class Question:
    """``overrides``, ``change``: as typed; ``on``: "speed", or the metric that is to get better.

    ``least``: the smallest gain worth having, as a fraction of the seconds or in the metric's unit; ``test``: of TESTS;
    ``base``, ``changed``: the run configs of the arms; ``tolerances``: relative differences that rounding explains, and
    that the precisions ask for; ``code``: a digest of the code of both; ``draw``: of coins and seeds.
    """

    overrides: list[str]
    change: str
    on: str
    least: float
    alpha: float
    test: str
    tolerances: list[float]
    code: str
    draw: str
    base: Section
    changed: Section
    format: int = FORMAT

    def to_json(self) -> Mapping[str, Any]:
        return asdict(self)

    @classmethod
    def of(cls, content: Mapping[str, Any]) -> "Question":
        """A question of a file that anybody may have written. Raises ConfigurationError."""
        try:
            found = cls(**content)
        except TypeError as error:
            raise ConfigurationError(f"it is not a judgement: {error}.") from None
        if found.format != FORMAT:
            raise ConfigurationError(f"it has format {found.format}, but this version reads {FORMAT}.")
        numbers = [found.least, found.alpha, *(found.tolerances if isinstance(found.tolerances, list) else [None])]
        sound = all(type(each) in (int, float) and math.isfinite(each) for each in numbers)
        known = found.test in TESTS and isinstance(found.on, str) and isinstance(found.draw, str) and len(numbers) == 4
        arms = isinstance(found.base, dict) and isinstance(found.changed, dict)
        if not (sound and known and arms and 0 < found.alpha < 1):
            raise ConfigurationError("it is not a judgement: a value of its question has another type.")
        return found

    @property
    def id(self) -> str:
        """A digest of all that makes it the same question when it is asked again."""
        asked = {**asdict(self), "draw": None, "overrides": None, "change": None}
        return hashlib.sha256(json.dumps(asked, sort_keys=True).encode()).hexdigest()[:12]

    @property
    def is_about_speed(self) -> bool:
        """Whether both arms take the same steps, whose seconds are compared."""
        return self.on == SPEED

    @property
    def is_relative(self) -> bool:
        """Whether seconds are compared, by their logarithms."""
        return self.is_about_speed or self.target is not None

    @property
    def target(self) -> tuple[str, float] | None:
        """The metric and the value that are to be reached, if it asks how soon they are."""
        found = TARGET.fullmatch(self.on)
        return None if found is None else (found[1], float(found[2]))

    def config(
        self, purpose: str, arm: str, *, round: int = 0, place: int = 0, updates: int = 0, per_epoch: int = 1
    ) -> Section:
        """The run config of a run with this purpose.

        ``round``, ``place``: whose seed it has; ``updates``: the number of timed ones; ``per_epoch``: of the arm.
        """
        config = self.base if arm == BASE else self.changed
        if not self.is_about_speed and purpose in (FLOOR, ROUND):
            config = {**config, "seed": seed(self.draw, purpose, round, place)}
        config = {**config, "logger": {}, "checkpoint": {**config["checkpoint"], "every": "0"}}
        if self.is_about_speed and purpose in (TRIAL, FLOOR, ROUND):
            last = WARM_UP + updates
            trainer = {**config["trainer"], "evaluate_every": 0, "stop_after": last, "test": False}
            trainer["epochs"] = max(trainer["epochs"], math.ceil(last / per_epoch))
            if trainer["max_steps"] is not None:
                trainer["max_steps"] = max(trainer["max_steps"], last)
            config["trainer"] = trainer
        elif purpose == FACTS:
            config["trainer"] = {**config["trainer"], "compile": "none"}
        return config


def config_digest(config: Section) -> str:
    """A digest of a run config without its seed."""
    kept = {key: value for key, value in config.items() if key != "seed"}
    return hashlib.sha256(json.dumps(kept, sort_keys=True, default=str).encode()).hexdigest()[:16]
