"""The audit of a search's log: whether it kept more changes than noise alone would have kept."""

from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Annotated

from manyheads.runner.answers.judge.log.read_log import SearchLog, read_log
from manyheads.runner.answers.judge.log.records import TAIL, LoggedGain, chances, gains, quantile, unexplained
from manyheads.runner.errors import ConfigurationError, ExitCode, printable
from manyheads.runner.run.answer import Answer
from manyheads.runner.wording import counted, listed, tell

SHOWN = 20  # gains, those that noise explains least first


@dataclass(frozen=True)
class AuditedLog(Answer):
    """Whether a search kept more than noise alone would have."""

    path: Path
    on: Annotated[str, "the metric"]
    lower_is_better: bool
    changes: Annotated[int, "the changes with a value; the first value is the baseline"]
    failed: Annotated[int, "the changes without a value"]
    unreadable: Annotated[list[int], "the lines that cannot be read"]
    kept: Annotated[int, "the kept changes with a value"]
    improved: Annotated[int, "how many of those were the best so far"]
    expected: Annotated[float, "how many noise alone keeps, on average"]
    low: Annotated[int, "noise alone keeps fewer with a probability of at most 5 %"]
    high: Annotated[int, "noise alone keeps more with a probability of at most 5 %"]
    probability: Annotated[float, "that noise alone keeps as many or more"]
    gains: Annotated[list[LoggedGain], "the kept changes that were the best so far; those in a row are one gain"]
    unexplained: Annotated[list[LoggedGain], "those that noise does not explain"]

    @property
    def exit_code(self) -> ExitCode:
        return ExitCode.DONE if self.improved > self.high or self.unexplained else ExitCode.NO

    def show(self) -> None:
        direction, others = "lower" if self.lower_is_better else "higher", self.kept - self.improved
        tell(f"{counted(self.changes, 'change')} by {self.on}, {direction} is better.{self._left_out()}")
        worse = f" {others} of them {'was' if others == 1 else 'were'} not the best so far." if others else ""
        tell(f"Kept: {self.kept}.{worse}")
        tell(
            f"Noise alone keeps {self.expected:.1f} of {self.changes} (90 %: {self.low} to {self.high}). "
            "Changes that do harm lower that number."
        )
        for gain in sorted(self.gains, key=lambda gain: gain.probability)[:SHOWN]:
            tell(f"  {_lines(gain)}: {gain.before:g} -> {gain.value:g}, {_evidence(gain)}: {gain.about[:60]}")
        if len(self.gains) > SHOWN:
            tell(f"  and {len(self.gains) - SHOWN} that noise explains as well")
        tell(self._verdict())

    def _left_out(self) -> str:
        failed = f" {counted(self.failed, 'trial')} without a value left out." if self.failed else ""
        lines = [str(line) for line in self.unreadable]
        word, verb = ("Lines", "are") if len(lines) > 1 else ("Line", "is")
        return failed + (f" {word} {listed(lines, 9)} cannot be read and {verb} left out." if lines else "")

    def _verdict(self) -> str:
        if self.unexplained:
            lines = listed([_lines(gain) for gain in self.unexplained], 9)
            return f"More than noise: after {lines}, more values are better than chance explains."
        if self.improved > self.high:
            return (
                f"More than noise, which keeps as many with a probability of {self.probability:.2g}. Judge each change."
            )
        return "No more than noise alone would keep. Judge each change that matters."


def audit_log(path: Path, on: str | None, *, lower: bool | None) -> AuditedLog:
    """Audit the log of a search.

    on: the metric; None for the one that the log names. lower: whether lower is better; None if the log says so itself.
    Raises ConfigurationError for a log that can't be read, or that does not say which values are better.
    """
    log = read_log(path, on)
    is_lower = _direction(path, log) if lower is None else lower
    # The first with a value is the baseline.
    sections = [[trial for trial in section if trial.value is not None][1:] for section in log.sections]
    every = [gain for section in log.sections for gain in gains(section, lower_is_better=is_lower)]
    improved = sum(len(gain.lines) for gain in every)
    distribution = chances([len(section) for section in sections])
    return AuditedLog(
        path=path,
        on=log.on,
        lower_is_better=is_lower,
        changes=sum(map(len, sections)),
        failed=sum(trial.value is None for section in log.sections for trial in section),
        unreadable=log.unreadable,
        kept=sum(trial.is_kept for section in sections for trial in section),
        improved=improved,
        expected=sum(number * chance for number, chance in enumerate(distribution)),
        low=quantile(distribution, TAIL),
        high=quantile(distribution, 1 - TAIL),
        probability=sum(distribution[improved:]),
        gains=every,
        unexplained=unexplained(every, TAIL),
    )


def _direction(path: Path, log: SearchLog) -> bool:
    """Whether lower is better: as the log says, or as all kept values show."""
    if log.lower_is_better is not None:
        return log.lower_is_better
    steps = []
    for section in log.sections:
        values = [trial.value for trial in section if trial.value is not None and trial.is_kept]
        steps += [later - value for value, later in pairwise(values) if later != value]
    if steps and all((step < 0) == (steps[0] < 0) for step in steps):
        return steps[0] < 0
    raise ConfigurationError.at(
        "--log", path, f" does not say which values of {printable(log.on)} are better: add --lower or --higher."
    )


def _lines(gain: LoggedGain) -> str:
    first, last = gain.lines[0], gain.lines[-1]
    return f"line {first}" if first == last else f"lines {first}-{last}"


def _evidence(gain: LoggedGain) -> str:
    """The evidence that a gain lasts, as a phrase."""
    if not gain.after:
        return "no value after it"
    values = counted(gain.after, "value")
    return f"{gain.better} of the {values} after it better than before (p = {gain.probability:.2g})"
