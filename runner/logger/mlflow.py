"""Declarations of logger=mlflow, and MLflow's store of runs: a server, or a database or folder on this machine."""

import contextlib
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from manyheads.runner.errors import ConfigurationError
from manyheads.runner.logger.logger_option import ADDRESS, TrackerOption
from manyheads.runner.logger.tracker import Point, RunOutcome, TrackedRun, TrackedSweep, Tracker
from manyheads.runner.machine import invocation
from manyheads.runner.option.rules import TEXT
from manyheads.runner.run import seal
from manyheads.runner.run.files import in_turn
from manyheads.runner.run.ledger import Ledger

if TYPE_CHECKING:
    from mlflow import MlflowClient

VARIABLE = "MLFLOW_TRACKING_URI"
DATABASE, FOLDER = "mlflow.db", "mlruns"  # MLflow's own defaults, in the working directory
# The caller tries again later; the client's own retries would take four minutes if a server is gone, and twenty if it
# hangs.
PATIENCE = {"MLFLOW_HTTP_REQUEST_MAX_RETRIES": "0", "MLFLOW_HTTP_REQUEST_TIMEOUT": "5"}
SILENCE = {"MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true"}


class Store:
    """An MLflow store. ``uri``: its address, relative to the present working directory; None for MLflow's default.

    A store on this machine decides where the files of its runs are written. So it must have been created by one of the
    user's own runs, unless the user named it, or trusts its folder, in which case the process still works there.
    """

    def __init__(self, uri: str | None):
        self._here = Path.cwd()
        named = uri or os.environ.get(VARIABLE)
        self._uri = absolute(named) if named else None

    def client(self) -> "MlflowClient":
        """Open the store. Raises ConfigurationError for one that may be somebody else's, and whatever MLflow raises."""
        for name, value in (PATIENCE | SILENCE).items():
            os.environ.setdefault(name, value)
        from mlflow import MlflowClient

        if self._uri is None and Path.cwd() == self._here:
            return MlflowClient()
        with contextlib.chdir(self._here):  # a database puts its files into the working directory
            return MlflowClient(self._uri or self._own())

    def _own(self) -> str:
        path = self._here / DATABASE
        if not seal.is_own_place(path):
            if any(os.path.lexists(name) for name in (DATABASE, FOLDER)):
                raise ConfigurationError(
                    f"{DATABASE} or {FOLDER} in this folder may be somebody else's. Set logger.mlflow.tracking_uri, or "
                    f"run once: {invocation.command('trust', '.')}"
                )
            seal.trust(path, None)
        return f"sqlite:///{path}"


def absolute(uri: str) -> str:
    """An MLflow address that does not depend on the working directory."""
    for scheme in ("sqlite:///", "file:"):
        if uri.startswith(scheme) and "://" not in uri.removeprefix("sqlite:///"):
            return scheme + os.path.abspath(uri.removeprefix(scheme))
    is_folder = ":" not in uri and not uri.startswith("databricks")
    return os.path.abspath(uri) if is_folder else uri


class MLflowOption(TrackerOption):
    """Declares its keys: somebody else's config may not choose the server that a run is published to."""

    package = "mlflow"
    rules: ClassVar = {"tracking_uri": ADDRESS, "experiment": TEXT}


STATUS = {"completed": "FINISHED", "failed": "FAILED", "interrupted": "KILLED", "running": "RUNNING"}
RUN, SWEEP, PARENT = "manyheads.run", "manyheads.sweep", "mlflow.parentRunId"
LOCK = "trackers.lock"  # in a sweep's folder, so that its jobs create one parent run


class MLflow(Tracker):
    """Publishes a run to MLflow, below a parent run if it is a sweep's.

    ``tracking_uri``: None for MLFLOW_TRACKING_URI, or else MLflow's own default, in the working directory.
    """

    def __init__(self, *, tracking_uri: str | None = None, experiment: str = "manyheads", checkpoint: str = "none"):
        super().__init__(checkpoint=checkpoint)
        self._store, self._experiment = Store(tracking_uri), experiment
        self._run = ""
        self._page: str | None = None
        self._group: TrackedSweep | None = None

    @property
    def name(self) -> str:
        return self._run

    @property
    def url(self) -> str | None:
        return self._page

    def open(self, run: TrackedRun, recorded_name: str | None) -> int | None:
        self._client = self._store.client()
        self._of = self._experiment_id()
        self._folder, self._group = run.folder, run.group
        self._parent = self._parent_of(run) if run.group else None
        tracked = self._find(RUN, run.key)
        self._run = tracked.info.run_id if tracked else self._create(run.name, run.started, _tags(run, self._parent))
        base = self._client.tracking_uri
        if base.startswith("http"):
            self._page = f"{base.rstrip('/')}/#/experiments/{self._of}/runs/{self._run}"
        if tracked and tracked.info.status != "RUNNING":
            self._client.update_run(self._run, status="RUNNING")
        if tracked is None or tracked.data.params.keys() != run.config.keys():
            self._log_config(run)
        return _last_step(tracked) if recorded_name != self._run else None

    def publish(self, points: Sequence[Point]) -> None:
        from mlflow.entities import Metric

        metrics = [
            Metric(tag, value, round(1000 * point.time), point.step)
            for point in points
            for tag, value in point.values.items()
        ]
        self._client.log_batch(self._run, metrics=metrics)

    def upload(self, path: Path, name: str) -> None:
        folder = str(Path(name).parent)
        self._client.log_artifact(self._run, str(path), None if folder == "." else folder)

    def close(self, outcome: RunOutcome) -> None:
        self.publish([Point(outcome.step, outcome.time, outcome.values)])
        if outcome.error:
            self._client.set_tag(self._run, "manyheads.error", outcome.error[:5000])
        self._end(self._run, STATUS.get(outcome.status, "FAILED"), outcome.time)
        if self._group and self._parent:
            self._end(self._parent, _status_of_sweep(self._group, self._folder, outcome.status), outcome.time)

    def _end(self, run: str, status: str, time: float) -> None:
        if status == "RUNNING":
            self._client.update_run(run, status=status)
        else:
            self._client.set_terminated(run, status, round(1000 * time) or None)

    def _log_config(self, run: TrackedRun) -> None:
        from mlflow.entities import Param

        self._client.log_batch(self._run, params=[Param(key, str(value)) for key, value in run.config.items()])

    def _experiment_id(self) -> str:
        from mlflow.exceptions import MlflowException

        if experiment := self._client.get_experiment_by_name(self._experiment):
            return experiment.experiment_id
        try:
            return self._client.create_experiment(self._experiment)
        except MlflowException:  # another run's publisher may just have made it
            if experiment := self._client.get_experiment_by_name(self._experiment):
                return experiment.experiment_id
            raise

    def _find(self, tag: str, value: str) -> Any:
        runs = self._client.search_runs([self._of], f"tags.`{tag}` = '{value}'", max_results=1)
        return runs[0] if runs else None

    def _create(self, name: str, started: float, tags: dict[str, str]) -> str:
        run = self._client.create_run(self._of, round(1000 * started), tags, name)
        return run.info.run_id

    def _parent_of(self, run: TrackedRun) -> str:
        """The id of the MLflow run that represents the sweep."""
        assert run.group is not None
        with in_turn(run.group.folder / LOCK):
            parent = self._find(SWEEP, run.group.key)
            return parent.info.run_id if parent else self._create(run.group.name, run.started, {SWEEP: run.group.key})


def _tags(run: TrackedRun, parent: str | None) -> dict[str, str]:
    tags = {RUN: run.key, **{f"manyheads.{name}": value[:5000] for name, value in run.facts.items()}}
    tags |= dict.fromkeys(run.tags, "true")
    if run.notes:
        tags["mlflow.note.content"] = run.notes
    if "commit" in run.facts:
        tags["mlflow.source.git.commit"] = run.facts["commit"]
    if "user" in run.facts:
        tags["mlflow.user"] = run.facts["user"]
    if run.group and parent:
        tags |= {PARENT: parent, "manyheads.overrides": " ".join(run.group.overrides)[:5000]}
    return tags


def _last_step(tracked: Any) -> int:
    """The last step for which a run has a value; -1 if it has none."""
    return -1 if tracked is None else max((metric.step for metric in tracked.data._metric_objs), default=-1)


def _status_of_sweep(group: TrackedSweep, folder: Path, status: str) -> str:
    """The sweep's status when the run in ``folder`` has ended with ``status``, which its ledger may not list yet."""
    entries = Ledger(group.folder).entries()
    others = [entry.state for entry in entries if (group.folder / entry.folder).resolve() != folder.resolve()]
    states = [*others, status]
    if {"running", "pending"} & {*states}:
        return "RUNNING"
    if "failed" in states:
        return "FAILED"
    return "KILLED" if "interrupted" in states else "FINISHED"
