"""What MLflow is told of a sweep, without MLflow; with it: tests/launchers/companions/publishing/test_mlflow.py."""

import pytest

from manyheads.runner.logger.mlflow import _status_of_sweep
from manyheads.runner.logger.tracker import TrackedSweep
from manyheads.runner.run.ledger import Entry, Ledger


@pytest.mark.parametrize(
    ("listed", "ended", "expected"),
    [
        (["completed", "running"], "completed", "RUNNING"),
        (["completed", "pending"], "completed", "RUNNING"),
        (["running", "running"], "completed", "RUNNING"),
        (["running", "completed"], "completed", "FINISHED"),  # the ledger has yet to learn of the first job's end
        (["running", "completed"], "failed", "FAILED"),
        (["completed", "failed"], "completed", "FAILED"),
        (["interrupted", "completed"], "interrupted", "KILLED"),
    ],
)
def test_a_sweep_runs_until_its_last_job_has_ended(tmp_path, listed, ended, expected):
    """``ended``: how the first job did."""
    entries = [Entry(job, str(job), [], state=state) for job, state in enumerate(listed)]
    Ledger(tmp_path).create({}, *entries)
    group = TrackedSweep(tmp_path, "key", "name", [])
    assert _status_of_sweep(group, tmp_path / "0", ended) == expected
