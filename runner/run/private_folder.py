"""A folder of this user alone, in which processes on this machine meet; one of them at a time changes what is in it."""

import os
import stat
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from manyheads.runner.errors import ConfigurationError
from manyheads.runner.run.files import try_lock, unlock
from manyheads.runner.run.folder import Folder

BETWEEN = 0.005


def private_folder(path: Path, *, create: bool, refusal: Callable[[str], ConfigurationError]) -> Folder | None:
    """The folder, held open. It belongs to this user, who alone may enter it; None if there is none.

    ``create``: create it if it is missing; the folder above it must exist. ``refusal``: the error for a reason. Raises
    that for a folder that others could write to or have made a link, and OSError if it can't be created or opened.
    """
    if create:
        _create(path)
    try:
        if stat.S_ISLNK(path.lstat().st_mode):
            raise refusal("is a link")
        folder = Folder(path.parent.resolve() / path.name)
    except FileNotFoundError:
        return None
    except NotADirectoryError:
        raise refusal("is not a folder") from None
    status = os.fstat(folder.handle)
    why = None
    if status.st_uid != os.geteuid():
        why = f"belongs to user {status.st_uid}, not to you"
    elif status.st_mode & (stat.S_IRWXG | stat.S_IRWXO):
        why = f"has the mode {stat.S_IMODE(status.st_mode):o}, not 700, so that others may enter it"
    if why is not None:
        os.close(folder.handle)
        raise refusal(why)
    return folder


def _create(path: Path) -> None:
    try:
        os.mkdir(path, stat.S_IRWXU)
    except FileExistsError:
        return
    path.chmod(stat.S_IRWXU)  # whatever the umask


@contextmanager
def folder_turn(folder: Folder, *, seconds: float) -> Iterator[None]:
    """A context that one process at a time is in, of those that hold this folder open.

    Raises TimeoutError if it is others' turn for longer than ``seconds``.
    """
    descriptor = os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=folder.handle)
    try:
        until = time.monotonic() + seconds
        while not try_lock(descriptor):
            if time.monotonic() > until:
                raise TimeoutError(f"{folder.path} has been locked for {seconds:g} s by another process")
            time.sleep(BETWEEN)
        try:
            yield
        finally:
            unlock(descriptor)
    finally:
        os.close(descriptor)
