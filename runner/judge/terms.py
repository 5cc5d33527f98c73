"""The terms of a judgement: what should improve, how often it may err, and how long it may take."""

import math
from dataclasses import dataclass
from pathlib import Path

from manyheads.runner.errors import ConfigurationError, not_allowed
from manyheads.runner.judge.aims import SPEED, TRAINING, aims_of
from manyheads.runner.judge.sequential import TESTS
from manyheads.runner.option.rules import seconds

LEAST_GAIN = 0.01  # of seconds


@dataclass(frozen=True)
class Terms:
    """The flags of a judgement. Raises ConfigurationError for values that are not allowed.

    ``on``: the aims: "speed" (with the same numerics), metrics such as "val_acc1,val_loss", or "seconds to
    metric=value". The first should improve, and none get worse.
    ``allow_changed_numerics``: "speed," is followed by metrics, and means the seconds of complete trainings, whose
    numerics may differ.
    ``least``: the smallest gain worth having in the first aim; for seconds, a fraction.
    ``alpha``: the error rate.
    ``test``: a key of sequential.TESTS.
    ``session``: a file; alpha is divided among all judgements in it.
    ``rate``: in the session, alpha bounds the fraction of false keeps.
    ``budget``: a duration such as 10m.
    """

    on: str = SPEED
    least: float | None = None
    alpha: float = 0.05
    test: str | None = None
    session: Path | None = None
    rate: bool = False
    budget: str = "10m"
    allow_changed_numerics: bool = False

    def __post_init__(self) -> None:
        if self.allow_changed_numerics and not self.on.startswith(f"{SPEED},"):
            raise ConfigurationError(
                "--allow-changed-numerics asks whether a change that computes something else learns as well in less "
                f"time. Name what must not get worse: --on {SPEED},val_acc1",
                key="--on",
                value=self.on,
            )
        aims_of(self.asked)
        if not 0 < self.alpha < 1:
            raise not_allowed("--alpha", self.alpha, "a number between 0 and 1, such as 0.05")
        if not 0 <= self.least_gain < (1 if aims_of(self.asked)[0].is_relative else math.inf):
            raise not_allowed("--least", self.least, "a number of at least 0; for seconds, a fraction below 1")
        if seconds(self.budget) is None:
            raise not_allowed("--budget", self.budget, "seconds, or 90s, 30m, 8h, 2d")
        if self.name_of_test not in TESTS:
            raise not_allowed("--test", self.test, ", ".join(TESTS))
        if self.rate and self.session is None:
            raise ConfigurationError("--rate requires a session: name its file with --session.", key="--rate")

    @property
    def asked(self) -> str:
        """``on``, in which "speed" is replaced by TRAINING if numerics may change."""
        return self.on.replace(SPEED, TRAINING, 1) if self.allow_changed_numerics else self.on

    @property
    def least_gain(self) -> float:
        """``least``, or its default."""
        default = LEAST_GAIN if aims_of(self.asked)[0].is_relative else 0.0
        return default if self.least is None else self.least

    @property
    def name_of_test(self) -> str:
        """``test``, or its default."""
        return self.test or ("symmetric" if aims_of(self.asked)[0].is_speed else "mean")

    @property
    def seconds(self) -> float:
        """The budget in seconds."""
        return seconds(self.budget) or 0.0
