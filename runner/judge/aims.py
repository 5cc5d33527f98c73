"""What a change should improve: speed, a metric, or the seconds of a training; and its value in a run."""

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from manyheads.runner.errors import ConfigurationError

SPEED = "speed"
TRAINING = "seconds of training"
TARGET = re.compile(r"seconds to (\w+)=(-?\d+(?:\.\d+)?)")
FOUND, SIGNS = "found", "signs"  # findings of a training: by aim its number, and 1 or -1 for a lower number is better
UNREACHED = 2.0  # times the seconds of a training that never reached its target are counted for it


@dataclass(frozen=True)
class Aim:
    """``text``: as typed."""

    text: str

    @property
    def is_speed(self) -> bool:
        """Whether both arms take the same steps, whose seconds are compared."""
        return self.text == SPEED

    @property
    def target(self) -> tuple[str, float] | None:
        """The metric and the value that are to be reached, if it asks how soon they are."""
        found = TARGET.fullmatch(self.text)
        return None if found is None else (found[1], float(found[2]))

    @property
    def is_relative(self) -> bool:
        """Whether seconds are compared, by their logarithms."""
        return self.is_speed or self.is_training or self.target is not None

    @property
    def is_training(self) -> bool:
        """Whether the seconds of whole trainings are compared, whatever they compute."""
        return self.text == TRAINING

    @property
    def what(self) -> str:
        """What is counted, for sentences: there are more or fewer of it."""
        return "seconds per update" if self.is_speed else self.text

    def value(self, findings: Mapping[str, Any]) -> float:
        """The number of a completed run that is compared; greater is better."""
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
            yield f"{TRAINING} come first, and what must not get worse after them, as in '{TRAINING},val_acc1'"
        if aim.is_speed and len(aims) > 1:
            yield (
                "speed is compared alone, between runs that compute the same. Leave out the others, or, for a change "
                "that computes something else, add --allow-changed-numerics"
            )
    if len({*aims}) < len(aims):
        yield "a name is repeated"
