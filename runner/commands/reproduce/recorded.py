"""Reads a finished run, and refuses one with which nothing can be compared."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from manyheads.runner.errors import ConfigurationError
from manyheads.runner.machine import invocation
from manyheads.runner.option.declared import GROUPS
from manyheads.runner.option.locate import Section
from manyheads.runner.provenance.provenance import FORMAT
from manyheads.runner.report.load_run import Columns, read_columns
from manyheads.runner.run.data_files import read_json
from manyheads.runner.run.json_types import ProvenanceJson, ResultJson, check
from manyheads.runner.run.ledger import Ledger
from manyheads.runner.run.run_folder import RunFolder


@dataclass(frozen=True)
class Past:
    """A completed run as it was recorded. ``config``: as frozen; ``steps``, ``epochs``: its tables, by column."""

    folder: RunFolder
    config: Section
    result: ResultJson
    provenance: ProvenanceJson
    steps: Columns
    epochs: Columns


def read_past(path: str | Path) -> Past:
    """Read a completed run.

    Raises ConfigurationError if the folder is missing, is not a run, is unfinished, was written by a newer version, or
    was edited.
    """
    folder = RunFolder(path)
    if folder.path.is_file():
        raise ConfigurationError(f"{folder} is a file. Name the run's folder, such as {folder.path.parent}.")
    if not folder.path.is_dir():
        raise ConfigurationError(
            f"{folder} is not a folder. Name the folder of a finished run, such as outputs/<date>/<time>."
        )
    if Ledger(folder.path).exists() or (folder.path / "multirun.yaml").exists():
        raise ConfigurationError(f"{folder} is a sweep. Name one of its runs, such as {folder}/0.")
    folder.pin_config()
    config = folder.read_config()
    folder.refuse_other_format()
    if missing := [name for name in (*GROUPS, "trainer") if not isinstance(config.get(name), dict)]:
        raise ConfigurationError(f"{folder.config} is not a run config: it lacks {', '.join(missing)}.")
    provenance = _read_json(folder.provenance, f"{folder} was never started. Resume it: {_resume(folder)}")
    if not isinstance(written_by := provenance.get("format", 0), int) or written_by > FORMAT:
        raise ConfigurationError(
            f"{folder} was written by a newer version of manyheads (format {written_by}; this one reads up to "
            f"{FORMAT}). Update manyheads."
        )
    result = _read_json(folder.result, f"{folder} has not ended. Wait for it, or resume it: {_resume(folder)}")
    if result.get("status") != "completed":
        raise ConfigurationError(
            f"{folder} is not complete: {result.get('status')} after {result.get('steps', 0)} steps. "
            f"Resume it: {_resume(folder)}"
        )
    came_to = check(result, ResultJson, folder.result)
    came_from = check(provenance, ProvenanceJson, folder.provenance)
    _check_unedited(folder, came_to)
    return Past(folder, config, came_to, came_from, read_columns(folder.steps), read_columns(folder.epochs))


def _resume(folder: RunFolder) -> str:
    return invocation.command("resume", folder)


def _read_json(path: Path, missing: str) -> dict[str, Any]:
    try:
        return read_json(path)
    except FileNotFoundError:
        raise ConfigurationError(missing) from None
    except OSError as error:
        raise ConfigurationError(f"{path} cannot be read: {error}. Restore it from a copy.") from None


def _check_unedited(folder: RunFolder, result: ResultJson) -> None:
    now, recorded = folder.digests(), result.get("files")
    if not isinstance(recorded, dict):
        raise ConfigurationError(f"{folder.result} has no digests of the run's files. Restore it from a copy.")
    if changed := sorted(name for name in {*now, *recorded} if now.get(name) != recorded.get(name)):
        how = {
            name: "is missing" if name not in now else "was added" if name not in recorded else "" for name in changed
        }
        named = ", ".join(f"{name} {how[name]}".strip() for name in changed)
        raise ConfigurationError(
            f"{folder} was edited after it ended ({named}; by the digests in {folder.result.name}), so it can't be "
            "verified. Restore it from a copy."
        )
