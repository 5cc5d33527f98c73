"""The terms of a judgement: its aims, how often it may err, and how long it may take.

An aim (speed, a metric, seconds of training) has a value in each run.
"""

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from manyheads.runner.answers.measure.hypotheses import NULLS
from manyheads.runner.errors import ConfigurationError, not_allowed
from manyheads.runner.option.rules import seconds

SPEED, CLOCK = "speed", "seconds"
TRAINING = "seconds of training"
TARGET = re.compile(r"seconds to (\w+)=(-?\d+(?:\.\d+)?)")
# Keys of a training's findings: by aim its value, its sign, -1 if lower is better, and the version of its definition.
FOUND, SIGNS, VERSIONS = "found", "signs", "versions"
UNREACHED = 2.0  # a run that never reaches its target counts as this many times its seconds of training


@dataclass(frozen=True)
class Aim:
    """One aim of a judgement. ``text``: as typed in ``--on``."""

    text: str

    @property
    def is_speed(self) -> bool:
        """Whether both arms take the same steps, whose seconds are compared."""
        return self.text == SPEED

    @property
    def is_clock(self) -> bool:
        """Whether the seconds of complete processes are compared, whatever they compute."""
        return self.text == CLOCK

    @property
    def is_time(self) -> bool:
        """Whether it is the time of computing the same."""
        return self.is_speed or self.is_clock

    @property
    def target(self) -> tuple[str, float] | None:
        """The metric and its target value, of an aim such as ``seconds to val_acc1=94``; None for other aims."""
        match = TARGET.fullmatch(self.text)
        return None if match is None else (match[1], float(match[2]))

    @property
    def metric(self) -> str:
        """The metric whose values, or whose first value at the target, are compared."""
        return self.text if self.target is None else self.target[0]

    @property
    def is_relative(self) -> bool:
        """Whether seconds are compared, as logarithms."""
        return self.is_time or self.is_training or self.target is not None

    @property
    def is_training(self) -> bool:
        """Whether the seconds of complete trainings are compared, whose numerics may differ."""
        return self.text == TRAINING

    @property
    def what(self) -> str:
        """The noun in sentences such as "2 % fewer seconds per update"."""
        return "seconds per update" if self.is_speed else self.text

    def value(self, findings: Mapping[str, Any]) -> float:
        """The aim's value in a completed run with these findings, with a sign such that greater is better."""
        if self.is_speed:
            return -math.log(findings["seconds"] / findings["updates"])
        measured: float = findings[FOUND][self.text]
        return -math.log(measured) if self.is_relative else findings[SIGNS][self.text] * measured


def aims_of(text: str) -> tuple[Aim, ...]:
    """The aims of ``--on``: the first should improve, and none get worse. Raises ConfigurationError."""
    aims = tuple(Aim(part.strip()) for part in text.split(","))
    for complaint in _complaints(aims):
        raise ConfigurationError(f"--on '{text}' is not allowed: {complaint}.", key="--on", value=text)
    return aims


def _complaints(aims: tuple[Aim, ...]) -> Iterator[str]:
    for aim in aims:
        if not aim.text:
            yield "a name is missing. Separate several by single commas, as in val_acc1,val_loss"
        if aim.text.startswith("seconds") and aim.target is None and not aim.is_training:
            yield "name a target, such as 'seconds to val_acc1=94'"
        if aim.is_training and (aims[0] != aim or len(aims) == 1):
            yield f"'{TRAINING}' must come first, followed by what must not get worse: '{TRAINING},val_acc1'"
        if aim.is_speed and len(aims) > 1:
            yield (
                "speed must be the only aim: it is compared between runs that compute the same. Name it alone, or, for "
                "a change that computes something else, add --allow-changed-numerics"
            )
    if len({*aims}) < len(aims):
        yield "a name is repeated"


ALPHA = 0.05
LEAST_GAIN = 0.01  # of seconds


def usual_least(aim: Aim) -> float:
    """The smallest gain worth having in an aim, unless it is typed."""
    return LEAST_GAIN if aim.is_relative else 0.0


def usual_test(aim: Aim) -> str:
    """The test of an aim, unless it is typed."""
    return "symmetric" if aim.is_time else "mean"


@dataclass(frozen=True)
class JudgementTerms:
    """The flags of a judgement. Raises ConfigurationError for values that are not allowed.

    ``on``: the aims: "speed" (with the same numerics), metrics such as "val_acc1,val_loss", or "seconds to
    metric=value". The first should improve, and none get worse.
    ``allow_changed_numerics``: "speed," is followed by metrics, and means the seconds of complete trainings, whose
    numerics may differ.
    ``least``: the smallest gain worth having in the first aim; for seconds, a fraction.
    ``alpha``: the error rate.
    ``test``: a key of NULLS.
    ``session``: a file; alpha is divided among all judgements in it.
    ``rate``: in the session, alpha bounds the fraction of false keeps.
    ``budget``: a duration such as 10m.
    """

    on: str = SPEED
    least: float | None = None
    alpha: float = ALPHA
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
        aims = self.aims
        if not 0 < self.alpha < 1:
            raise not_allowed("--alpha", self.alpha, "a number between 0 and 1, such as 0.05")
        if not 0 <= self.least_gain < (1 if aims[0].is_relative else math.inf):
            raise not_allowed("--least", self.least, "a number of at least 0; for seconds, a fraction below 1")
        if seconds(self.budget) is None:
            raise not_allowed("--budget", self.budget, "seconds, or 90s, 30m, 8h, 2d")
        if self.name_of_test not in NULLS:
            raise not_allowed("--test", self.test, ", ".join(NULLS))
        if self.test == "paired" and any(aim.is_relative for aim in aims):
            raise ConfigurationError(
                "--paired gives both runs of a round the same seed, which is about numbers such as --on val_loss, not "
                "about seconds.",
                key="--paired",
            )
        if self.rate and self.session is None:
            raise ConfigurationError("--rate requires a session: name its file with --session.", key="--rate")

    @property
    def aims(self) -> tuple[Aim, ...]:
        """What should improve, and what must not get worse. Raises ConfigurationError."""
        return aims_of(self.asked)

    @property
    def asked(self) -> str:
        """``on``, in which "speed" is replaced by TRAINING if numerics may change."""
        return self.on.replace(SPEED, TRAINING, 1) if self.allow_changed_numerics else self.on

    @property
    def least_gain(self) -> float:
        """``least``, or its default."""
        return usual_least(self.aims[0]) if self.least is None else self.least

    @property
    def name_of_test(self) -> str:
        """``test``, or its default."""
        return self.test or usual_test(self.aims[0])

    @property
    def seconds(self) -> float:
        """The budget in seconds."""
        return seconds(self.budget) or 0.0
