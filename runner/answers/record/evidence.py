"""The evidence of a record: its runs with their results, machine and clock; gathered from a sweep, or read."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from manyheads.runner.answers.record.statistics import Spread, p_of_difference, p_of_target
from manyheads.runner.errors import ConfigurationError
from manyheads.runner.option.declared import GROUPS
from manyheads.runner.option.locate import OPTION, Section
from manyheads.runner.provenance.provenance import signature
from manyheads.runner.records.claims import direction, machine_of
from manyheads.runner.records.load_run import load_run
from manyheads.runner.run.ledger import Entry, Ledger
from manyheads.runner.run.run_folder import RunFolder
from manyheads.runner.run.seal import digest_of
from manyheads.runner.trust.allowed_keys import may_declare
from manyheads.runner.trust.check_trust import complaint
from manyheads.runner.trust.trust_store import Trust, trusted_packages

FORMAT = 2
CLOCKS = {
    "training": (
        "train_seconds",
        "the slowest rank's updates, including the wait for data, but without startup, compilation, evaluation and "
        "checkpoints",
    ),
    "wall": ("wall_seconds", "from the launch of the ranks to their end, everything included"),
}
MACHINE = ("host", "devices", "versions", "commit", "clean", "command")


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
                    **asdict(each),
                    **each.findings(self.target),
                    "p_of_same_seconds": None if each is first else p_of_difference(each.seconds, first.seconds),
                }
                for each in self.contenders
            ],
        }

    @classmethod
    def from_json(cls, content: dict[str, Any]) -> "RecordEvidence":
        """The record in parsed JSON that anybody may have written. Raises ConfigurationError if it is malformed."""
        if content.get("format", FORMAT) != FORMAT:
            raise ConfigurationError(f"it has format {content['format']!r}, but this version reads {FORMAT}.")
        try:
            contenders = [
                Contender(
                    **{key: each[key] for key in ("label", "signature", "config", "machine")},
                    attempts=tuple(RecordedAttempt(**attempt) for attempt in each["attempts"]),
                )
                for each in content["contenders"]
            ]
            found = cls(RecordTarget(**content["target"]), content["clock"]["name"], tuple(contenders))
            found.to_json()  # fails for values that are not numbers
            [math.isfinite(attempt.wall_seconds) for each in contenders for attempt in each.attempts]
        except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError):
            raise ConfigurationError("it is not a record: a value is missing, or has another type.") from None
        return found


def checked_signature(config: Section, trust: Trust | None) -> str:
    """The signature of a run config, which may be somebody else's. ``trust``: None if it is the user's own.

    Raises ConfigurationError for option classes that are not trusted, since computing it imports them.
    """
    sections = {group: section for group in GROUPS if isinstance(section := config.get(group), dict)}
    named = [(f"{group}.{OPTION}", section.get(OPTION)) for group, section in sections.items()]
    if found := [(key, name) for key, name in named if not may_declare(key.partition(".")[0], name, trust)]:
        raise ConfigurationError(complaint(found, trust))
    if missing := [group for group in GROUPS if group not in sections]:
        raise ConfigurationError(f"it holds a config without {missing[0]}.")
    return signature(config)


def gather(sweep: Path, *, target: str, clock: str) -> RecordEvidence:
    """The record of a sweep whose jobs all completed. Raises ConfigurationError.

    ``target``: such as val_acc1=94. A sweep with a failed job is refused: leaving runs out would choose among them.
    """
    metric, _, number = target.partition("=")
    value = _number(number, target)
    by_job: dict[int, list[Entry]] = {}
    for entry in Ledger(sweep).entries():
        if entry.state != "completed":
            raise ConfigurationError(
                f"{sweep}: run {entry.job}, repeat {entry.repeat}, is {entry.state}. A record counts every run: "
                "finish the sweep with resume, or start a new one."
            )
        by_job.setdefault(entry.job, []).append(entry)
    if not by_job:
        raise ConfigurationError(f"{sweep} has no jobs.")
    better = direction(RunFolder(sweep / by_job[min(by_job)][0].folder).read_result() or {}, metric)
    chosen = [by_job[job] for job in sorted(by_job)]
    common = set.intersection(*(set(entries[0].overrides) for entries in chosen)) if len(chosen) > 1 else set()
    contenders = [_contender(sweep, entries, metric, CLOCKS[clock][0], common) for entries in chosen]
    return RecordEvidence(RecordTarget(metric, value, better == "max"), clock, tuple(contenders))


def _number(text: str, target: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise ConfigurationError.at(
            "--target", target, " is not allowed. Allowed: a metric and a number, such as val_acc1=94."
        )
    return value


def _contender(sweep: Path, entries: Sequence[Entry], metric: str, seconds: str, common: set[str]) -> Contender:
    """The contender with these runs. ``common``: the overrides that all contenders share, which its label omits."""
    ordered = sorted(entries, key=lambda entry: entry.repeat)
    first = RunFolder(sweep / ordered[0].folder)
    config = first.read_config()
    provenance: Mapping[str, Any] = load_run(first.path).provenance
    trust = None if first.is_own() else Trust(trusted_packages(), place=first.path)
    return Contender(
        label=" ".join(each for each in ordered[0].overrides if each not in common) or "as configured",
        signature=checked_signature(config, trust),
        config=config,
        machine={key: provenance[key] for key in MACHINE if key in provenance},
        attempts=tuple(_attempts(sweep, ordered, metric, seconds)),
    )


def _attempts(sweep: Path, entries: Sequence[Entry], metric: str, seconds: str) -> Iterator[RecordedAttempt]:
    for entry in entries:
        folder = RunFolder(sweep / entry.folder)
        config = folder.read_config()
        result: Mapping[str, Any] = folder.read_result() or {}
        provenance = load_run(folder.path, steps=()).provenance
        try:
            yield RecordedAttempt(
                seed=config["seed"],
                value=float(result["metrics"][metric]),
                seconds=float(result[seconds]),
                wall_seconds=float(result["wall_seconds"]),
                samples=result["samples_seen"],
                weights_sha256=result["weights_sha256"],
                machine=machine_of(provenance),
                code=digest_of(provenance.get("own_code")),
                folder=entry.folder,
            )
        except (KeyError, TypeError, ValueError):
            raise ConfigurationError(f"{folder}: its {folder.result.name} lacks {metric} or {seconds}.") from None
