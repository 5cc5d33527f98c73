"""What becomes of a run of the queue, in its result.json: queued, interrupted, or failed before it could begin."""

from manyheads.launchers.result import last_known
from manyheads.runner.errors import Failure
from manyheads.runner.run.json_types import ResultJson
from manyheads.runner.run.run_folder import RunFolder


def status_of(run: RunFolder) -> str | None:
    """The status that a run has recorded; None if it has recorded none."""
    return (run.read_result() or {}).get("status")


def has_ended(run: RunFolder) -> bool:
    """Whether nothing is left to be run; of one that its ranks have completed, its end is still to be recorded."""
    return run.completed() is not None or status_of(run) == "failed"


def mark(run: RunFolder, status: str) -> None:
    """Set a run's status, and keep what is known of its progress. Raises OSError."""
    run.write_json(run.result, {**(run.read_result() or {}), "status": status})


def fail(run: RunFolder, failure: Failure) -> None:
    """Record that a run failed, unless it has recorded its end itself. Raises OSError."""
    if status_of(run) in (None, "queued"):
        failed: ResultJson = {**last_known(run), "status": "failed", "error": failure.to_json()}
        run.write_json(run.result, failed)
