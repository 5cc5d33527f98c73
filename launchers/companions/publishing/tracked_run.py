"""A run's description from its folder, apart from its tables: its identity, its config, how it ended."""

import hashlib
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from manyheads.runner.errors import ConfigurationError
from manyheads.runner.logger.tracker import RunOutcome, TrackedRun, TrackedSweep
from manyheads.runner.run.data_files import read_bytes, read_json
from manyheads.runner.run.files import is_locked, matching
from manyheads.runner.run.json_types import ProvenanceJson, right
from manyheads.runner.run.leaving import tracked
from manyheads.runner.run.ledger import MOST_BYTES, Ledger
from manyheads.runner.run.run_folder import RunFolder
from manyheads.runner.run.seal import digest_of
from manyheads.runner.run.yaml_text import flatten

FACTS = ("command", "commit", "host", "user", "signature", "continued_from")


def tracked_run(folder: RunFolder) -> TrackedRun:
    """The description of a run for trackers. Raises ConfigurationError if it has never been started."""
    config = folder.read_config()
    try:
        provenance = right(read_json(folder.provenance), ProvenanceJson)
    except FileNotFoundError:
        raise ConfigurationError(
            f"{folder} holds a run that was never started, so there is nothing to publish."
        ) from None
    if (key := provenance.get("id")) is None:
        raise ConfigurationError(f"{folder} cannot be published: {folder.provenance.name} has no id. Restore it.")
    is_own = folder.owns(id=key)
    group = _group(folder, is_own=is_own)
    name = config.get("name") or (f"{group.name}/{folder.path.name}" if group else _short(folder.path))
    return TrackedRun(
        folder=folder.path,
        key=_own_key(folder, key, is_own=is_own),
        name=str(name),
        notes=config.get("notes"),
        tags=[str(tag) for tag in config.get("tags") or []],
        group=group,
        config={key: value for key, value in flatten(config).items() if key not in ("name", "notes", "tags")},
        facts={name: str(value) for name in FACTS if (value := provenance.get(name)) is not None},
        started=folder.provenance.stat().st_mtime,
    )


def outcome(folder: RunFolder, *, step: int, time: float, is_running: bool | None = None) -> RunOutcome:
    """How the run ended. ``step``, ``time``: of its last row; ``is_running``: None to find out.

    A run without a result that no process is working on was killed.
    """
    result = folder.read_result()
    if result is None:
        running = is_locked(folder.config) if is_running is None else is_running
        return RunOutcome("running" if running else "failed", step, time, None if running else "its process was killed")
    error = (result.get("error") or {}).get("message")
    best: dict[str, Any] = {**(result.get("best") or result.get("metrics") or {}), "objective": result.get("objective")}
    values = {f"best/{name}": float(value) for name, value in best.items() if value is not None}
    return RunOutcome(result.get("status", "failed"), step, time, str(error) if error else None, values)


def files(folder: RunFolder, *, checkpoint: str) -> Iterator[Path]:
    """The files of a run in addition to its numbers. ``checkpoint``: none, best or last."""
    yield from tracked(folder.path)
    if checkpoint != "none":
        path = {"best": folder.best_checkpoint, "last": folder.last_checkpoint}[checkpoint]
        with suppress(FileNotFoundError):  # a newer checkpoint may have replaced it
            yield from matching(path, "*") or [path]


def _own_key(folder: RunFolder, key: str, *, is_own: bool) -> str:
    """The id of a run or sweep at a tracker: its key if the user recorded it, since others may claim any key."""
    return key if is_own else digest_of(["received", str(folder.path.resolve()), key])


def _group(folder: RunFolder, *, is_own: bool) -> TrackedSweep | None:
    """The sweep whose ledger names this run; None if there is none."""
    for sweep in list(folder.path.parents)[:3]:  # hydra.sweep.subdir may have folders in it
        ledger = Ledger(sweep)
        if not ledger.exists():
            continue
        with suppress(ConfigurationError, OSError):
            name = ledger.name_of(folder.path)
            entry = next((entry for entry in ledger.entries() if entry.folder == name), None)
            # Lines are only ever added, and the first entry has the time at which it was planned.
            lines = read_bytes(ledger.path, most=MOST_BYTES).splitlines()[:2]
            key = hashlib.sha256(b"".join(lines)).hexdigest()[:16]
            if entry is not None:
                return TrackedSweep(
                    ledger.sweep, _own_key(folder, key, is_own=is_own), _short(ledger.sweep), entry.overrides
                )
    return None


def _short(path: Path) -> str:
    """The last two parts of a path: in the default configs, date and time."""
    return "_".join(path.parts[-2:])
