"""Folders of the user's settings, secrets and caches, by the XDG Base Directory Specification, on every system.

Source: https://specifications.freedesktop.org/basedir-spec/latest/.
"""

import errno
import os
import stat
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Literal

from manyheads.runner.errors import ConfigurationError, warn
from manyheads.runner.machine.ownership import is_closed

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


def cache_folder(name: str) -> Path | None:
    """A folder of the user's cache, created for this user alone. ``name``: what is kept there.

    None for a user without a home, if it can't be created, and if others may write there.
    """
    if (cache := user_folder("cache")) is None:
        return None
    folder = cache / "manyheads" / name
    with suppress(OSError):
        create_private(folder)
        if (others := opened_to_others(folder)) is None:
            return folder.resolve()
        warn(f"{folder} is not used, since others may write to {others}: remove it")
    return None


def opened_to_others(folder: Path) -> Path | None:
    """The folder of ours at which others may write to what is cached in ``folder``, after the user's own are closed."""
    close_parents(folder)
    return next((path for path in (folder, folder.parent) if not is_closed(path)), None)


def state_folder() -> Path | None:
    """The folder of the user's key and trust: MANYHEADS_STATE, else manyheads in XDG_STATE_HOME.

    None for a user without a home, and if others may write to the default. Raises ConfigurationError if MANYHEADS_STATE
    is not absolute, or if others may write to it.
    """
    named = os.environ.get(STATE)
    base = None if named else user_folder("state")
    if not named and base is None:
        return None
    folder = Path(named) if named else base / "manyheads"  # type: ignore[operator]
    if not folder.is_absolute():
        raise ConfigurationError.at(STATE, named, " is not allowed. Allowed: an absolute path.")
    if not named:
        close_parents(folder)
    if is_closed(folder):
        return folder
    if named:
        remedy = "Name a folder inside it, which is then created for you alone, or take their rights away."
        raise ConfigurationError.at(STATE, named, f": others may write to it. {remedy}")
    warn(f"{folder} is not used, since others may write to it. Remove their write permission: chmod 700 {folder}")
    return None


def create_private(folder: Path) -> None:
    """Create a folder and its missing parents, each for this user alone whatever the umask. Raises OSError."""
    for path in (*reversed(folder.parents), folder):
        if not os.path.lexists(path):
            path.mkdir(mode=stat.S_IRWXU, exist_ok=True)
            path.chmod(stat.S_IRWXU)
    if not folder.is_dir():
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(folder))


def close_parents(folder: Path) -> None:
    """Take others' right to write from the user's folders between the home and this one, which they could replace."""
    with suppress(RuntimeError, OSError):
        home = Path.home()
        for parent in (parent for parent in folder.parents if parent != home and parent.is_relative_to(home)):
            status = parent.stat()
            if status.st_uid == os.getuid() and not is_closed(parent):
                parent.chmod(stat.S_IMODE(status.st_mode) & ~(stat.S_IWGRP | stat.S_IWOTH))
                warn(f"others could write to {parent}, and so replace {folder}: now only you can")


def can_write(folder: Path) -> bool:
    """Whether files can be written to a folder, created if it is missing. A full disk has no room for any."""
    try:
        create_private(folder)
        with tempfile.TemporaryFile(dir=folder) as file:
            file.write(bytes(4096))
            file.flush()
    except OSError:
        return False
    return True
