"""Gathers the evidence of a record from a sweep."""

import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from manyheads.runner.answers.record.evidence import (
    CLOCKS,
    Contender,
    RecordedAttempt,
    RecordEvidence,
    RecordTarget,
)
from manyheads.runner.errors import ConfigurationError
from manyheads.runner.provenance.past_config import recorded_signature
from manyheads.runner.records.claims import direction, machine_of
from manyheads.runner.records.load_run import load_run
from manyheads.runner.run.ledger import Entry, Ledger
from manyheads.runner.run.run_folder import RunFolder
from manyheads.runner.run.seal import digest_of

MACHINE = ("host", "devices", "versions", "commit", "clean", "command")


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
    return Contender(
        label=" ".join(override for override in ordered[0].overrides if override not in common) or "as configured",
        signature=recorded_signature(config, first),
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
