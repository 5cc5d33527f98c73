"""Declarations of logger=trackio."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import ClassVar

from manyheads.runner.logger.logger_option import NAME, TrackerOption
from manyheads.runner.logger.tracker import Point, RunOutcome, TrackedRun, Tracker


class TrackioOption(TrackerOption):
    """Needs no place: Trackio writes below the user's own cache, or TRACKIO_DIR."""

    package = "trackio"
    rules: ClassVar = {"project": NAME}


class Trackio(Tracker):
    """Publishes a run to Trackio's database on this machine, under ``project``; uploads no files."""

    def __init__(self, *, project: str = "manyheads"):
        super().__init__()
        self._project = project

    @property
    def name(self) -> str:
        return self._run.key

    def open(self, run: TrackedRun, recorded_name: str | None) -> int | None:
        import trackio.sqlite_storage  # noqa: F401  # fails now if a package is missing

        self._run = run
        return None if recorded_name == run.key else -1

    def publish(self, points: Sequence[Point]) -> None:
        self._write(points, [f"{self._run.key}:{point.step}:{min(point.values, default='')}" for point in points])

    def close(self, outcome: RunOutcome) -> None:
        end = Point(outcome.step, outcome.time, outcome.values)
        self._write([end], [f"{self._run.key}:end:{outcome.status}:{outcome.step}"])

    def _write(self, points: Sequence[Point], ids: list[str]) -> None:
        from trackio.sqlite_storage import SQLiteStorage

        group = {"_Group": self._run.group.name} if self._run.group else {}
        SQLiteStorage.bulk_log(
            project=self._project,
            run=self._run.name,
            run_id=self._run.key,
            metrics_list=[dict(point.values) for point in points],
            steps=[point.step for point in points],
            timestamps=[datetime.fromtimestamp(point.time, UTC).isoformat() for point in points],
            log_ids=ids,
            config={**self._run.config, **group},
        )
