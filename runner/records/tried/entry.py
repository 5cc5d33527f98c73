"""Reads what the index keeps of a run: its end, its signature, and its config in sections that runs share."""

import json
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from manyheads.runner.errors import ConfigurationError
from manyheads.runner.records.run_summary import Summary, summary
from manyheads.runner.records.tried.index import IndexedRun
from manyheads.runner.run.data_files import read_json
from manyheads.runner.run.frozen import read_frozen
from manyheads.runner.run.ledger import Entry
from manyheads.runner.run.run_folder import RunFolder

ENDED = ("completed", "failed")  # the statuses that only a change of the folder ends


def read_row(path: Path, job: Entry | None, numbers: dict[str, int]) -> tuple[IndexedRun, bool]:
    """A run's row, and whether it stays the same until the run's folder changes.

    ``job``: of the ledger, if it belongs to a sweep. ``numbers``: of the sections, by their texts, which grow.
    """
    folder = RunFolder(path)
    run = summary(folder, planned=None if job is None else job.state)
    parts = (run.config or read_frozen(folder.composed)).sections
    sections = [numbers.setdefault(json.dumps(part), len(numbers)) for part in parts.values()]
    row = IndexedRun(
        run.status, _reason(run, job), run.started, run.metric.column, run.measured, _signature(folder), sections
    )
    return row, run.result.get("status") in ENDED


def _reason(run: Summary, job: Entry | None) -> str:
    error: Mapping[str, Any] = run.result.get("error") or {}
    message = error.get("message") or (None if job is None else job.reason)
    return message if isinstance(message, str) else ""


def _signature(folder: RunFolder) -> str | None:
    with suppress(OSError, ConfigurationError):
        signature = read_json(folder.provenance).get("signature")
        return signature if isinstance(signature, str) else None
    return None
