"""The evidence of a record: its runs with their results, machine and clock."""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from statistics import fmean, median, stdev
from typing import Any

from manyheads.runner.errors import ConfigurationError

FORMAT = 2
CLOCKS = {
    "training": (
        "train_seconds",
        "the slowest rank's updates, including the wait for data, but without startup, compilation, evaluation and "
        "checkpoints",
    ),
    "wall": ("wall_seconds", "from the launch of the ranks to their end, everything included"),
}
SIGNIFICANT = 0.01  # the level that https://github.com/KellerJordan/modded-nanogpt requires of a record


@dataclass(frozen=True)
class Spread:
    """Summary of ``n`` numbers. ``deviation``: their standard deviation; 0 for a single number."""

    n: int
    mean: float
    deviation: float
    median: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Sequence[float]) -> "Spread":
        """The summary of at least one number."""
        deviation = stdev(values) if len(values) > 1 else 0.0
        return cls(len(values), fmean(values), deviation, median(values), min(values), max(values))


def p_of_target(values: Sequence[float], target: float, *, is_higher_better: bool) -> float | None:
    """The probability of a mean this good or better if the recipe's true mean just missed the target.

    By a one-sided Student's t-test. None for fewer than two values.
    """
    sample = Spread.of(values)
    if sample.n < 2:
        return None
    ahead = (sample.mean - target) * (1 if is_higher_better else -1)
    if sample.deviation == 0:
        return 0.0 if ahead > 0 else 1.0
    from scipy.stats import t

    return float(t.sf(ahead / (sample.deviation / math.sqrt(sample.n)), sample.n - 1))


def p_of_difference(one: Sequence[float], other: Sequence[float]) -> float | None:
    """The probability of means that differ at least this much if the true means are equal.

    By a two-sided Welch's t-test. None for fewer than two values, and if all values are equal.
    """
    if min(len(one), len(other)) < 2 or len({*one, *other}) == 1:
        return None
    from scipy.stats import ttest_ind

    return float(ttest_ind(one, other, equal_var=False).pvalue)


@dataclass(frozen=True)
class RecordedAttempt:
    """One run.

    ``value``: the target's metric after the last epoch. ``seconds``: by the record's clock. ``wall_seconds``: from the
    launch to the end. ``samples``: the number of training samples. ``machine``: a digest of versions, devices and this
    project's code. ``code``: a digest of the user's own code. ``folder``: relative to the sweep's.
    """

    seed: int
    value: float
    seconds: float
    wall_seconds: float
    samples: int
    weights_sha256: str
    machine: str
    code: str
    folder: str


@dataclass(frozen=True)
class RecordTarget:
    """The target: ``metric`` should be at least ``value`` or, if lower is better, at most."""

    metric: str
    value: float
    is_higher_better: bool

    def __str__(self) -> str:
        return f"{self.metric} {'≥' if self.is_higher_better else '≤'} {self.value:g}"


@dataclass(frozen=True)
class Contender:
    """A recipe and all of its runs. ``config``: the frozen config of its first run; ``machine``: of its provenance."""

    label: str
    signature: str
    config: dict[str, Any]
    machine: dict[str, Any]
    attempts: tuple[RecordedAttempt, ...]

    @property
    def values(self) -> list[float]:
        """The metric's value in each run."""
        return [attempt.value for attempt in self.attempts]

    @property
    def seconds(self) -> list[float]:
        """The seconds of each run."""
        return [attempt.seconds for attempt in self.attempts]

    def findings(self, target: RecordTarget) -> dict[str, Any]:
        """The statistics that follow from the runs, as JSON."""
        return {
            "value": asdict(Spread.of(self.values)),
            "seconds": asdict(Spread.of(self.seconds)),
            "p_of_target": p_of_target(self.values, target.value, is_higher_better=target.is_higher_better),
        }


@dataclass(frozen=True)
class RecordEvidence:
    """A record. The first of ``contenders`` is the recipe of the record, the others were timed beside it."""

    target: RecordTarget
    clock: str
    contenders: tuple[Contender, ...]

    def to_json(self) -> dict[str, Any]:
        """The content of record.json: runs, and the claims that follow from them."""
        first = self.contenders[0]
        return {
            "format": FORMAT,
            "target": asdict(self.target),
            "clock": {"name": self.clock, "meaning": CLOCKS[self.clock][1]},
            "contenders": [
                {
                    **asdict(contender),
                    **contender.findings(self.target),
                    "p_of_same_seconds": None
                    if contender is first
                    else p_of_difference(contender.seconds, first.seconds),
                }
                for contender in self.contenders
            ],
        }

    @classmethod
    def from_json(cls, content: dict[str, Any]) -> "RecordEvidence":
        """The record in parsed JSON that anyone may have written. Raises ConfigurationError if it is malformed."""
        if content.get("format", FORMAT) != FORMAT:
            raise ConfigurationError(f"it has format {content['format']!r}, but this version reads {FORMAT}.")
        try:
            contenders = [
                Contender(
                    **{key: entry[key] for key in ("label", "signature", "config", "machine")},
                    attempts=tuple(RecordedAttempt(**attempt) for attempt in entry["attempts"]),
                )
                for entry in content["contenders"]
            ]
            evidence = cls(RecordTarget(**content["target"]), content["clock"]["name"], tuple(contenders))
            evidence.to_json()  # fails for values that are not numbers
            [math.isfinite(attempt.wall_seconds) for entry in contenders for attempt in entry.attempts]
        except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError):
            raise ConfigurationError("it is not a record: a value is missing, or has another type.") from None
        return evidence
