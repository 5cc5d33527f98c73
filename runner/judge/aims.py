"""The aims of a judgement (speed, a metric, seconds of training), and the value of an aim in a run."""

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from manyheads.runner.errors import ConfigurationError

SPEED = "speed"
TRAINING = "seconds of training"
TARGET = re.compile(r"seconds to (\w+)=(-?\d+(?:\.\d+)?)")
FOUND, SIGNS = "found", "signs"  # keys of a training's findings: by aim its value, and its sign: -1 if lower is better
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
    def target(self) -> tuple[str, float] | None:
        """The metric and its target value, of an aim such as ``seconds to val_acc1=94``; None for other aims."""
        found = TARGET.fullmatch(self.text)
        return None if found is None else (found[1], float(found[2]))

    @property
    def is_relative(self) -> bool:
        """Whether seconds are compared, as logarithms."""
        return self.is_speed or self.is_training or self.target is not None

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
        found: float = findings[FOUND][self.text]
        return -math.log(found) if self.is_relative else findings[SIGNS][self.text] * found


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
