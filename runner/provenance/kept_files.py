"""Copies of the files of the user's own that a run's config names, in the run's folder: ``code/<the file's path>``.

Each is sealed together with its run, so that nothing else can take its place; the seal is a comment in its first line.
"""

import hashlib
from pathlib import Path
from typing import Any

from manyheads.runner.run.data_files import read_bytes, read_json
from manyheads.runner.run.files import write_whole
from manyheads.runner.run.locate import files_named
from manyheads.runner.run.run_folder import RunFolder
from manyheads.runner.run.seal import is_own, sealed, take_over


def keep_files(folder: RunFolder, config: dict[str, Any]) -> None:
    """Copy them. One that is not there is left to the run's own error."""
    for path in {file.path for file in files_named(config).values()}:
        if path.is_file():
            copy = kept(folder, path)
            copy.parent.mkdir(parents=True, exist_ok=True)
            write_whole(copy, sealed(path.read_bytes(), name=_name(folder, path)))


def kept(folder: RunFolder, path: Path) -> Path:
    """Where the copy of a file is."""
    return folder.code / path.relative_to("/")


def is_own_copy(folder: RunFolder, path: Path) -> bool:
    """Whether the user's key has sealed the copy with this run, or he took it over."""
    try:
        return is_own(read_bytes(kept(folder, path)), name=_name(folder, path))
    except OSError:
        return False


def take_over_copies(folder: RunFolder, config: dict[str, Any]) -> None:
    """From now on they are the user's own. Raises OSError."""
    for path in {file.path for file in files_named(config).values()}:
        if kept(folder, path).exists():
            take_over(_name(folder, path), read_bytes(kept(folder, path)))


def is_unchanged(path: Path, digest: object) -> bool:
    """Whether the file itself is there as it was recorded. ``digest``: the record's, of ``own_code``."""
    return path.is_file() and hashlib.sha256(path.read_bytes()).hexdigest() == digest


def changed_files(folder: RunFolder) -> list[Path]:
    """The files that a run was started with, and that are not the same now."""
    try:
        digests = read_json(folder.provenance).get("own_code")
    except OSError:  # it was planned, and never started
        return []
    recorded = digests if isinstance(digests, dict) else {}
    paths = {file.path for file in files_named(folder.read_config()).values()}
    return sorted(path for path in paths if not is_unchanged(path, recorded.get(str(path))))


def _name(folder: RunFolder, path: Path) -> str:
    return f"{hashlib.sha256(folder.config_content()).hexdigest()} {path}"
