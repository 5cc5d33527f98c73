"""The copies that are executed in place of a past run's files: of files that changed, and that others can replace."""

import os
import sys
from collections.abc import Collection, Mapping
from pathlib import Path

from manyheads.runner.config.quoting import quoted
from manyheads.runner.errors import ConfigurationError
from manyheads.runner.machine import invocation
from manyheads.runner.option.source_file import COPIES
from manyheads.runner.option.tree import Section, files_named
from manyheads.runner.provenance.kept_files import changed_files, kept, snapshot
from manyheads.runner.provenance.started_in import how_to_trust, open_place
from manyheads.runner.run.run_folder import RunFolder


def copies(folder: RunFolder, config: Section, *, chosen: Collection[str] = (), edited: bool = True) -> dict[str, str]:
    """The copies to use for files that have changed, are missing, or can be replaced by others; prints a line for each.

    By key, without those that are chosen, which are keys and groups. edited: also for files that only the user can have
    changed. A run whose seal is not known here has no copies: one of somebody else, whose files are checked like
    everything else in it, and one that was submitted to a machine without the user's key. Raises ConfigurationError if
    a copy is not the recorded one.
    """
    if not folder.config.exists() or not folder.owns():
        return {}
    named, changed = files_named(config), changed_files(folder, config) if edited else {}
    opening = open_place(config) if named else None
    reasons, targets = {}, {}
    for key, file in named.items():
        if {key, key.partition(".")[0]} & {*chosen}:
            continue
        if not file.path.is_file():
            reasons[key] = "no longer exists"
        elif opening is not None:
            reasons[key] = f"is not imported, since others can write to {opening}"
        elif key in changed:
            reasons[key] = "has changed since the run"
    checked = snapshot(folder) if reasons else None
    for key, reason in reasons.items():
        file = named[key]
        copy, content = kept(folder, file.path), checked and checked / file.path.relative_to("/")
        if content is None or not content.is_file():
            remedy = how_to_trust(opening) if opening else "Restore the file"
            raise ConfigurationError.at(
                key,
                f"{file.path}:{file.name}",
                f" {reason}, and its copy {copy} is missing or not yours. {remedy}; or look at the copy, and trust it "
                f"as your own: {invocation.command('trust', folder)}",
            )
        print(f"{file.path} {reason}: its copy {copy} is used", file=sys.stderr, flush=True)
        targets[key] = f"{content}:{file.name}"
    return targets


def import_copies(*folders: RunFolder, edited: bool = False) -> None:
    """Make this process and the ranks execute the copies of missing files, and of those that others can replace.

    For runs that are resumed, whose configs stay as they are. ``edited``: as for ``copies``. Raises ConfigurationError
    if a copy is not the recorded one, and if two runs have different copies of a file.
    """
    used = [
        snapshot(folder)
        for folder in folders
        if folder.config.exists() and copies(folder, folder.read_config(), edited=edited)
    ]
    taken = list(dict.fromkeys(path for path in used if path is not None))
    if (file := _differing(taken)) is not None:
        raise ConfigurationError(
            f"/{file} changed between these runs, so they can only be resumed one by one: "
            f"{invocation.command('resume', folders[0])}"
        )
    os.environ[COPIES] = "\n".join(map(str, taken))


def overrides_of(copies: Mapping[str, str]) -> list[str]:
    """The overrides that use these copies."""
    return [f"{key}={quoted(target)}" for key, target in copies.items()]


def _differing(snapshots: list[Path]) -> Path | None:
    """A Python file that differs between snapshots; None if there is none."""
    contents: dict[Path, bytes] = {}
    for folder in snapshots if len(snapshots) > 1 else ():
        for file in folder.rglob("*.py"):
            content = file.read_bytes()
            if contents.setdefault(file.relative_to(folder), content) != content:
                return file.relative_to(folder)
    return None
