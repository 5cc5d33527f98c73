"""Copies of the user's own files that a run executes, and of its configs: ``code/<the file's path>`` in its folder.

The run's seal covers them. A snapshot of them is imported: their checked bytes, in a folder that only the user
can write to. So it makes no difference who replaces the copies afterwards.
"""

import hashlib
from collections.abc import Iterable
from pathlib import Path

from manyheads.runner.config.quoting import quoted
from manyheads.runner.errors import ConfigurationError
from manyheads.runner.machine import invocation
from manyheads.runner.option.locate import Section, files_named
from manyheads.runner.option.source_file import SourceFile
from manyheads.runner.provenance.own_code import own_files
from manyheads.runner.provenance.snapshot import snapshot
from manyheads.runner.run.data_files import read_json
from manyheads.runner.run.files import make_folder, write_whole
from manyheads.runner.run.run_folder import RunFolder


def keep_files(folder: RunFolder, config: Section) -> dict[str, bytes]:
    """Copy the user's own files to the run's folder; return the copies' contents by name, for the run's seal.

    A missing file is left for the run to report.
    """
    found = {}
    for path in own_files(config):
        copy = kept(folder, path)
        make_folder(copy.parent)
        found[name_of(path)] = path.read_bytes()
        write_whole(copy, found[name_of(path)])
    return found


def kept(folder: RunFolder, path: Path) -> Path:
    """The path of a file's copy."""
    return folder.code / path.relative_to("/")


def name_of(path: Path) -> str:
    """The name of a file's copy in a seal."""
    return f"code{path}"


def changed_files(folder: RunFolder, config: Section) -> dict[str, SourceFile]:
    """The files of a run's config that have changed since it started, by key."""
    try:
        digests = read_json(folder.provenance).get("own_code")
    except OSError:  # it was planned, and never started
        return {}
    recorded = digests if isinstance(digests, dict) else {}
    return {key: file for key, file in files_named(config).items() if not _is_as_in(recorded, file.path)}


def copies(folder: RunFolder, config: Section, *, chosen: Iterable[str] = ()) -> dict[str, str]:
    """The copies to use for files that have changed or no longer exist, by key; prints a line for each.

    chosen: keys and groups that are overridden. Somebody else's run has no such copies; its files are checked like
    everything else in it. Raises ConfigurationError if a copy is not the recorded one.
    """
    if not folder.is_own():
        return {}
    targets, changed = {}, changed_files(folder, config)
    taken = snapshot(folder) if changed else None
    for key, file in changed.items():
        if {key, key.partition(".")[0]} & set(chosen):
            continue
        how = "has changed since the run" if file.path.is_file() else "no longer exists"
        copy, checked = kept(folder, file.path), taken and taken / file.path.relative_to("/")
        if checked is None or not checked.is_file():
            raise ConfigurationError(
                f"{file.path} {how}, and its copy {copy} is missing or not yours. Restore the file; or look at "
                f"the copy, and trust it as your own: {invocation.command('trust', folder)}"
            )
        print(f"{file.path} {how}: its copy {copy} is used", flush=True)
        targets[key] = f"{checked}:{file.name}"
    return targets


def overrides_of(copies: dict[str, str]) -> list[str]:
    """The overrides that use these copies."""
    return [f"{key}={quoted(target)}" for key, target in copies.items()]


def _is_as_in(recorded: dict[str, object], path: Path) -> bool:
    return path.is_file() and hashlib.sha256(path.read_bytes()).hexdigest() == recorded.get(str(path))
