"""result.json: the outcome of a run. Rank 0 writes what it knows, the parent completes it, however the run ended."""

import csv
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

from manyheads.runner.errors import ConfigurationError, Failure, Interrupted, RunFailed
from manyheads.runner.run.data_files import no_link
from manyheads.runner.run.json_types import ResultJson
from manyheads.runner.run.run_folder import RunFolder

UNKNOWN: dict[str, Any] = {  # of a run whose ranks have reported nothing: the fields in their order
    "status": "failed",
    "error": None,
    "epochs": 0,
    "steps": 0,
    "samples_seen": 0,
    **dict.fromkeys(("world_size", "device", "parallel", "precision", "launcher")),
    **dict.fromkeys(("train_seconds", "wall_seconds", "samples_per_second", "peak_memory_mb")),
    "metrics": {},
    "objective": None,
    "best": None,
    "weights_sha256": None,
    "files": {},
}


def finish(
    folder: RunFolder,
    planned: ResultJson,
    wall_seconds: float,
    reason: BaseException | None = None,
    added: Mapping[str, Any] | None = None,
) -> ResultJson:
    """Write the final result.json and return its content.

    ``planned``: ``RunConfig.as_planned``; ``reason``: why the run did not complete; ``added``: fields that only the
    parent knows.
    """
    content = folder.read_result() or last_known(folder)
    failure = as_failure(reason)
    status = _status(content, reason, failure)
    fields = {
        **UNKNOWN,
        **{key: planned[key] for key in ("world_size", "device")},
        **{key: value for key, value in content.items() if key in UNKNOWN},
        **{key: planned[key] for key in ("parallel", "precision", "launcher")},
        "status": status,
        "error": failure.to_json() if failure else None,
        "wall_seconds": round(wall_seconds, 3),
        "files": folder.digests(),
    }
    result = cast(ResultJson, fields)
    if isinstance(reason, Interrupted) and status == "interrupted":  # else the signal came after the last update
        result["signal"] = reason.signum
    extra = {key: value for key, value in content.items() if key not in result and key != "signal"}
    folder.write_json(folder.result, {**result, **extra, **(added or {})})
    return result


def _status(content: ResultJson, reason: BaseException | None, failure: Failure | None) -> str:
    """How the run ended: as rank 0 has reported, unless it was interrupted before that, or has failed."""
    status = content.get("status", "failed")
    if isinstance(reason, Interrupted) and status != "completed":
        return "interrupted"
    return "failed" if failure else status


def as_failure(reason: BaseException | None) -> Failure | None:
    """The failure that ended a run; None if the run completed or was interrupted."""
    if isinstance(reason, RunFailed):
        return reason.failure
    if isinstance(reason, ConfigurationError):  # its traceback would point to code instead of the key
        return replace(Failure.of(reason), traceback="")
    return None


def last_known(folder: RunFolder) -> ResultJson:
    """The progress of a run that could not report it, from the last rows of its tables."""
    step, epoch = _last_row(folder.steps), _last_row(folder.epochs)
    return {
        "epochs": int(epoch.get("epoch", 0)),
        "steps": int(step.get("step", 0)),
        "samples_seen": int(step.get("samples", 0)),
    }


def _last_row(path: Path) -> dict[str, str]:
    if not path.exists():
        return {}
    with open(path, newline="", opener=no_link) as file:
        rows = [row for row in csv.DictReader(file) if None not in row.values()]
    return rows[-1] if rows else {}
