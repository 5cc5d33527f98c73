"""A run's entry in a list, from its small files only: a thousand runs are read in well under a second."""

import os
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Annotated, Any

from manyheads.runner.config.lookup import ABOUT
from manyheads.runner.errors import ConfigurationError
from manyheads.runner.records.find import find_runs, jobs_of
from manyheads.runner.records.keys import parsed
from manyheads.runner.records.load_run import Run
from manyheads.runner.records.shown_metric import ACCURACY, ShownMetric, metric_of
from manyheads.runner.records.values import config_value
from manyheads.runner.run.data_files import read_json
from manyheads.runner.run.files import is_locked
from manyheads.runner.run.frozen import FlatConfig, read_frozen, read_typed
from manyheads.runner.run.json_types import ResultJson, right
from manyheads.runner.run.run_folder import RunFolder

STATUSES = ("completed", "interrupted", "failed", "running", "queued", "pending", "skipped")


@dataclass(frozen=True)
class Summary:
    """One run. ``status``: one of STATUSES; ``started``: when it was frozen, in seconds since 1970.

    ``sweep``: the folder of the sweep that it is a job of. ``job``: what its queue reports about it; empty if there is
    no queue, or if a result says more.
    """

    folder: RunFolder
    sweep: Path | None
    status: str
    started: float
    result: ResultJson
    job: str = ""

    @cached_property
    def config(self) -> FlatConfig:
        """The frozen config by dotted key; empty if none was frozen."""
        return read_frozen(self.folder.config)

    @property
    def name(self) -> Any:
        """Its ``name``, if it was given one, read without the rest of the config."""
        return self.about.get("name")

    @cached_property
    def about(self) -> FlatConfig:
        """Its name, tags and notes, read without the rest of the config."""
        return read_frozen(self.folder.config, only=ABOUT)

    @cached_property
    def typed(self) -> dict[str, str]:
        """The overrides that were typed for the run, by key, except those that have their own columns."""
        if (evaluation := self.result.get("evaluation")) is None:
            overrides = read_typed(self.folder.composed.with_name("overrides.yaml"))
        else:
            overrides = [*map(str, evaluation.get("overrides", ()))]
        return {key: value for key, value in parsed(overrides).items() if key not in ("name", "notes", "trust")}

    @property
    def evaluates(self) -> str | None:
        """The run whose weights ``evaluate`` measured here; None for any other run."""
        of = (self.result.get("evaluation") or {}).get("of")
        return None if of is None else str(RunFolder(str(of)))

    @cached_property
    def metric(self) -> ShownMetric:
        """The metric by which its task is judged."""
        return metric_of(Run(self.folder.path, result=self.result)) or ACCURACY

    @property
    def measured(self) -> float | None:
        """The metric's value after the last epoch."""
        value = (self.result.get("metrics") or {}).get(self.metric.column)
        return None if value is None else float(value)

    @property
    def seconds(self) -> float | None:
        """How long it took, from its start to its end."""
        value = self.result.get("wall_seconds")
        return None if value is None else float(value)

    @property
    def changed(self) -> float:
        """When the run last wrote its result, or was frozen, in seconds since 1970."""
        return max(_time(self.folder), *(_modified(path) for path in (self.folder.result, self.folder.epochs)))

    def value(self, key: str) -> Any:
        """The value of a config key; for a group, the name of its option."""
        return config_value(self.config, key)


@dataclass(frozen=True)
class ListedRun:
    """A run in a list."""

    folder: str
    sweep: Annotated[str | None, "the folder of the sweep that it is a job of"]
    status: Annotated[str, f"one of {', '.join(STATUSES)}"]
    started: Annotated[float, "when it was frozen, in seconds since 1970"]
    seconds: Annotated[float | None, "how long it took, from its start to its end"]
    name: str | None
    tags: list[str]
    notes: str | None
    metric: Annotated[str, "the metric that its task is judged by"]
    value: Annotated[float | None, "that metric's value after the last epoch"]
    metrics: Annotated[dict[str, float | None], "all metrics of the last evaluation"]
    typed: Annotated[dict[str, str], "the overrides that were typed for it, by key"]
    job: Annotated[str, "what its queue reports about it; empty if it was not submitted to one"]
    evaluates: Annotated[str | None, "the run whose weights it measures; null for a run that trains"]

    @classmethod
    def of(cls, run: Summary) -> "ListedRun":
        """The entry of a summarized run."""
        about = {"name": None, "notes": None, **run.about, "tags": [str(tag) for tag in run.about.get("tags") or ()]}
        return cls(
            folder=str(run.folder),
            sweep=None if run.sweep is None else str(run.sweep),
            status=run.status,
            started=run.started,
            seconds=run.seconds,
            **about,
            metric=run.metric.column,
            value=run.measured,
            metrics=run.result.get("metrics") or {},
            typed=run.typed,
            job=run.job,
            evaluates=run.evaluates,
        )


def summaries(folder: Path) -> Iterator[Summary]:
    """All runs below a folder, in the order of their names. Raises ConfigurationError if the folder does not exist."""
    jobs, answers = cache(jobs_of), dict[str, Any]()
    for path, sweep in find_runs(folder):
        run = RunFolder(path)
        job = None if sweep is None else jobs(sweep).get(str(run.path))
        yield summary(run, sweep, None if job is None else job.state, answers)


def summary(
    folder: RunFolder, sweep: Path | None = None, planned: str | None = None, answers: dict[str, Any] | None = None
) -> Summary:
    """Summarize a run from its small files; an unreadable file counts as missing.

    ``planned``: its state in a sweep's ledger. ``answers``: a cache of queues' answers, shared by the runs of a list.
    """
    result: ResultJson = {}
    with suppress(OSError, ConfigurationError):
        result = right(read_json(folder.result), ResultJson)
    is_recorded = result.get("status") in STATUSES
    status, job = result["status"] if is_recorded else _status(folder, planned), ""
    if status == "interrupted":
        launcher = Run(folder.path, read_frozen(folder.config)).declared("launcher")
        standing = launcher.standing(folder, {} if answers is None else answers)
        if standing is not None and (not is_recorded or standing.status in ("queued", "running")):
            status, job = standing
    return Summary(folder=folder, sweep=sweep, status=status, started=_time(folder), result=result, job=job)


def _status(folder: RunFolder, planned: str | None) -> str:
    """The status of a run without a result: it is running only while a process holds its lock."""
    try:
        if is_locked(folder.config):
            return "running"
    except (OSError, ConfigurationError):  # it was refused, so it was never frozen
        return planned if planned in ("skipped", "pending") else "failed"
    if planned in ("skipped", "failed"):
        return planned
    return "pending" if folder.is_planned() else "interrupted"


def _time(folder: RunFolder) -> float:
    return _modified(folder.config) or _modified(folder.path)


def _modified(path: Path) -> float:
    with suppress(OSError):
        return os.lstat(path).st_mtime
    return 0.0
