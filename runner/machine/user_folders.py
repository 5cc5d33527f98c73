"""Folders of the user's settings, secrets and caches, by the XDG Base Directory Specification, on every system.

Source: https://specifications.freedesktop.org/basedir-spec/latest/.
"""

import os
import stat
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Literal

from manyheads.runner.errors import ConfigurationError, warn

STATE = "MANYHEADS_STATE"


def user_folder(kind: Literal["cache", "config", "state"]) -> Path | None:
    """The folder that XDG_CACHE_HOME, ... names, or its default; None for a user without a home.

    Relative values, also of HOME, are ignored, as the specification requires: they would mean different folders in
    different places, for example one that came with a run.
    """
    from platformdirs.unix import Unix  # takes a while, and a config is printed without it

    try:
        folder = Path(getattr(Unix(), f"user_{kind}_dir"))
    except RuntimeError:
        return None
    return folder if folder.is_absolute() else None


def state_folder() -> Path | None:
    """The folder of the user's key and trust: MANYHEADS_STATE, else manyheads in XDG_STATE_HOME.

    None for a user without a home, and if others may write to the default. Raises ConfigurationError if MANYHEADS_STATE
    is not absolute, or if others may write to it.
    """
    named = os.environ.get(STATE)
    base = None if named else user_folder("state")
    if not named and base is None:
        return None
    folder = Path(named) if named else base / "manyheads"  # type: ignore[operator, arg-type]
    if not folder.is_absolute():
        raise ConfigurationError.at(STATE, named, " is not allowed. Allowed: an absolute path.")
    if not _others_may_write(folder):
        return folder
    if named:
        remedy = "Name a folder inside it, which is then created for you alone, or take their rights away."
        raise ConfigurationError.at(STATE, named, f": others may write to it. {remedy}")
    warn(f"{folder} is not used, since others may write to it. Take their rights away: chmod 700 {folder}")
    return None


def create_state_folder(folder: Path) -> None:
    """Create it, for this user alone whatever the umask. Raises OSError."""
    if not folder.is_dir():
        folder.parent.mkdir(parents=True, exist_ok=True)
        folder.mkdir(mode=stat.S_IRWXU, exist_ok=True)
        folder.chmod(stat.S_IRWXU)


def _others_may_write(folder: Path) -> bool:
    with suppress(OSError):
        status = folder.stat()
        return bool(status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)) or status.st_uid not in (os.getuid(), 0)
    return False


def can_write(folder: Path) -> bool:
    """Whether files can be written to a folder, which is created if it is missing. A full disk has no room for any."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder) as file:
            file.write(bytes(4096))
            file.flush()
    except OSError:
        return False
    return True
