"""Reports of failed ranks to their parent: files beside the heartbeat.

On one machine they are in the run folder's ``logs/``. On several, they are in a folder on each machine's own disk,
which can be written when the shared disk is gone, full or hangs; the machine's agent sends them to the parent.
"""

import json
import math
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from manyheads.runner.run.data_files import read_json
from manyheads.runner.run.failure import Failure
from manyheads.runner.run.files import write_whole

Report = dict[str, Any]  # a Failure in JSON, with its time


def report_file(folder: Path, rank: int) -> Path:
    """The path of a rank's report. ``folder``: that of the heartbeat."""
    return folder / f"rank_{rank}.error.json"


def write_report(folder: Path, rank: int, failure: Failure) -> None:
    """Report how a rank failed, and when. Raises OSError."""
    content = {**failure.to_json(), "time": time.time()}
    write_whole(report_file(folder, rank), json.dumps(content, indent=2) + "\n")


def read_reports(folder: Path) -> list[Report]:
    """All reports in a folder; unreadable files are skipped."""
    found = []
    with suppress(OSError):  # of a folder that is gone
        for path in folder.glob("rank_*.error.json"):
            with suppress(OSError, ValueError):
                found.append(read_json(path))
    return found


def failures_of(reports: list[Report]) -> list[Failure]:
    """The failures, the earliest first; one whose time is unknown comes last."""
    found = [(_time(report), failure) for report in reports if (failure := Failure.from_json(report))]
    return [failure for _, failure in sorted(found, key=lambda each: each[0])]


def _time(report: Report) -> float:
    written = report.get("time")
    return written if isinstance(written, (int, float)) else math.inf
