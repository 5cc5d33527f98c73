"""Runs a recipe many times, gathers the runs of a sweep, and checks or repeats a record."""

import json
import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf

from manyheads.runner.answers.record import answer
from manyheads.runner.answers.record.answer import RecordedRuns
from manyheads.runner.answers.record.evidence import (
    CLOCKS,
    Contender,
    RecordedAttempt,
    RecordEvidence,
    RecordTarget,
)
from manyheads.runner.api import sweep
from manyheads.runner.errors import ConfigurationError
from manyheads.runner.machine import invocation
from manyheads.runner.provenance.past_config import recorded_signature
from manyheads.runner.records.claims import differences_of, direction, machine_of, repeated_seeds
from manyheads.runner.records.load_run import load_run
from manyheads.runner.run import scratch
from manyheads.runner.run.data_files import read_json
from manyheads.runner.run.files import write_whole
from manyheads.runner.run.ledger import Entry, Ledger
from manyheads.runner.run.progress import keeping
from manyheads.runner.run.run_folder import RunFolder
from manyheads.runner.run.seal import digest_of

MACHINE = ("host", "devices", "versions", "commit", "clean", "command")


def gather(sweep: Path, *, target: str, clock: str) -> RecordEvidence:
    """The record of a sweep whose jobs all completed. Raises ConfigurationError.

    ``target``: such as val_acc1=94. A sweep with a failed job is refused: leaving runs out would choose among them.
    """
    metric, _, number = target.partition("=")
    try:
        value = float(number)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise ConfigurationError.at(
            "--target", target, " is not allowed. Allowed: a metric and a number, such as val_acc1=94."
        )
    by_job: dict[int, list[Entry]] = defaultdict(list)
    for entry in Ledger(sweep).entries():
        if entry.state != "completed":
            raise ConfigurationError(
                f"{sweep}: run {entry.job}, repeat {entry.repeat}, is {entry.state}. A record counts every run: "
                "finish the sweep with resume, or start a new one."
            )
        by_job[entry.job].append(entry)
    if not by_job:
        raise ConfigurationError(f"{sweep} has no jobs.")
    chosen = [by_job[job] for job in sorted(by_job)]
    better = direction(RunFolder(sweep / chosen[0][0].folder).read_result() or {}, metric)
    common = set.intersection(*(set(entries[0].overrides) for entries in chosen)) if len(chosen) > 1 else set()
    contenders = [_contender(sweep, entries, metric, CLOCKS[clock][0], common) for entries in chosen]
    return RecordEvidence(RecordTarget(metric, value, better == "max"), clock, tuple(contenders))


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


def record(overrides: Sequence[str], *, runs: int, target: str, clock: str, conf: str | None) -> RecordedRuns:
    """Run each recipe ``runs`` times, in turn, each time with another seed, and write the record.

    ``overrides``: as for train. ``target``: such as val_acc1=94. ``clock``: a key of CLOCKS. ``conf``: a folder of more
    options. Raises ConfigurationError, and RunFailed if a run fails.
    """
    reserved = ("hydra.launcher.repeat=", "hydra.launcher.interleave=", "hydra.launcher.jobs=")
    if taken := [override for override in overrides if override.startswith(reserved)]:
        key, _, value = taken[0].partition("=")
        raise ConfigurationError.at(key, value, ": a record sets this itself. Set the number of runs with --runs.")
    more = [f"hydra.launcher.repeat={runs}", "hydra.launcher.interleave=true", "hydra.launcher.jobs=1"]
    command = f"{invocation.command('record')} <sweep> --target {target} --clock {clock}"
    with keeping("record", f"the runs are kept in the sweep; resume it, then: {command}"):
        folder = sweep([*overrides, *more], conf=conf).folder
    return of_sweep(folder, target=target, clock=clock)


def of_sweep(folder: Path, *, target: str, clock: str) -> RecordedRuns:
    """Write record.json and record.html into the folder of a sweep whose runs all completed.

    Raises ConfigurationError.
    """
    if not Ledger(folder).exists():
        raise ConfigurationError(f"{folder} is not a sweep folder.")
    evidence = gather(folder, target=target, clock=clock)
    contents = {"record.json": json.dumps(evidence.to_json(), indent=2) + "\n", "record.html": answer.as_page(evidence)}
    for name, text in contents.items():
        write_whole(folder / name, text)
    return RecordedRuns.of(evidence, [folder / name for name in contents])


def again(path: Path, overrides: Sequence[str], *, runs: int) -> RecordedRuns:
    """Time the first recipe of a record, such as somebody else's, on this machine.

    ``path``: record.json. ``overrides``: further ones. Its config is checked like any that somebody else wrote: raises
    ConfigurationError for classes that are not trusted, and as ``record`` does.
    """
    evidence, _ = read(path)
    with scratch.folder() as folder:
        write_whole(folder.resolve() / "config.yaml", OmegaConf.to_yaml(evidence.contenders[0].config))
        saved = ["--config-path", str(folder), "--config-name", "config"]
        target = f"{evidence.target.metric}={evidence.target.value!r}"
        return record([*saved, *overrides], runs=runs, target=target, clock=evidence.clock, conf=None)


def read(path: Path) -> tuple[RecordEvidence, dict[str, Any]]:
    """A record, and the content of its file. Raises ConfigurationError."""
    try:
        content = read_json(path)
        return RecordEvidence.from_json(content), content
    except OSError as error:
        raise ConfigurationError(f"{path}: {error.strerror}.") from None
    except ConfigurationError as error:
        raise ConfigurationError(f"{path}: {error}") from None


def check(path: Path) -> RecordedRuns:
    """Whether the claims of a record follow from its runs. Runs nothing that it names. Raises ConfigurationError."""
    evidence, content = read(path)
    wrong = [*differences_of(evidence.to_json(), content)]
    wrong += [
        f"contenders.{number}.signature: it does not match the config"
        for number, contender in enumerate(evidence.contenders)
        if recorded_signature(contender.config) != contender.signature
    ]
    for number, contender in enumerate(evidence.contenders):
        wrong += repeated_seeds([attempt.seed for attempt in contender.attempts], where=f"contenders.{number}.attempts")
        for index, attempt in enumerate(contender.attempts):
            faults = _faults(attempt, evidence.contenders[0].attempts[0], contender.attempts[0])
            wrong += [f"contenders.{number}.attempts.{index}.{fault}" for fault in faults]
    return RecordedRuns.of(evidence, [], again=invocation.command("record", "--again", path), wrong=wrong)


def _faults(attempt: RecordedAttempt, first: RecordedAttempt, own_first: RecordedAttempt) -> Iterator[str]:
    """Why a run cannot be compared with the ``first`` run of all, or with the ``own_first`` of its contender."""
    if not 0 < attempt.seconds < math.inf:
        yield f"seconds: {attempt.seconds} is not a time"
    elif attempt.seconds > attempt.wall_seconds:
        yield f"seconds: {attempt.seconds} s are more than the {attempt.wall_seconds} s that it took in total"
    if attempt.samples != own_first.samples:
        yield f"samples: it took {attempt.samples}, but the first run of its recipe {own_first.samples}"
    if attempt.machine != first.machine:
        yield "machine: its versions, devices or code differ from those of the first run"
    if attempt.code != own_first.code:
        yield "code: its code differs from that of the first run of its recipe: a file was edited in between"
