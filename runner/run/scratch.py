"""Temporary folders that live as long as a run, on a local disk; the next run removes those of killed processes.

A process keeps such a folder as long as it holds a lock on the folder's lock file, which the kernel releases however
the process ends.
"""

import multiprocessing
import os
import re
import secrets
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from multiprocessing.util import Finalize
from pathlib import Path
from typing import Any

from manyheads.runner.errors import warn
from manyheads.runner.machine.ownership import open_to_others
from manyheads.runner.run.files import lock_shared, try_lock

_NAME = re.compile(r"manyheads-[0-9a-f]{8,16}-\d+")
_NEW = "manyheads-new-"  # begins the names of folders that have no lock yet
_NEW_SECONDS = 60.0
_LOCK = "lock"
_SOCKET_PARENT = 60  # bytes: a socket's path has at most 107, of which our folder and multiprocessing's name take 40


def base() -> str:
    """The parent of such folders: in memory where possible."""
    shared = "/dev/shm"
    return shared if os.access(shared, os.W_OK) else for_sockets()


def for_sockets() -> str:
    """The parent of folders with sockets: the temporary one, unless its path is too long for them. See unix(7)."""
    return temporary(longest=_SOCKET_PARENT)


def temporary(*, longest: int = 4096) -> str:
    """The temporary folder, or another one if others can replace what is in it: they may write, and it isn't sticky.

    longest: bytes of its path.
    """
    places = (tempfile.gettempdir(), "/tmp", "/var/tmp", "/dev/shm")
    usable = [path for path in places if len(os.fsencode(path)) <= longest and os.access(path, os.W_OK)]
    for path in usable:
        if (others := open_to_others(Path(path, _NEW))) is None:
            return path
        warn(f"others can replace what is in {others}, so this process's folders are elsewhere. Set its sticky bit")
    return usable[0] if usable else tempfile.gettempdir()


def of_process() -> Path:
    """This process's own folder until its end, which is also where multiprocessing keeps its sockets.

    One that multiprocessing created itself would remain if this process is killed. Raises OSError.
    """
    process: Any = multiprocessing.current_process()
    if "tempdir" not in process._config:
        stack = ExitStack()
        process._config["tempdir"] = str(stack.enter_context(folder(for_sockets())))
        Finalize(None, stack.close, exitpriority=-100)  # as multiprocessing does, after what uses the folder
    return Path(process._config["tempdir"])


@contextmanager
def folder(parent: str | None = None) -> Iterator[Path]:
    """A folder below ``parent``, by default the temporary one, which only this user can enter, removed on exit.

    Raises OSError.
    """
    with own_folder(Path(parent or temporary(), f"manyheads-{secrets.token_hex(4)}-0")) as path:
        yield path


@contextmanager
def own_folder(path: Path) -> Iterator[Path]:
    """Create ``path``, which only this user can enter, and remove it on exit. Raises OSError."""
    sweep(path.parent)
    new = Path(tempfile.mkdtemp(prefix=_NEW, dir=path.parent))
    lock = os.open(new / _LOCK, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_CLOEXEC, 0o600)
    owner = os.getpid()
    try:
        lock_shared(lock)
        new.rename(path)  # only now, locked, can ``sweep`` find it
        yield path
    finally:
        for leftover in (new, path) if os.getpid() == owner else ():  # not in a fork, which has inherited this context
            shutil.rmtree(leftover, ignore_errors=True)
        os.close(lock)


def kept(path: Path) -> int:
    """A descriptor that, passed to another process, keeps the folder for it beyond the end of this one."""
    lock = os.open(path / _LOCK, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
    lock_shared(lock)
    return lock


def sweep_all() -> None:
    """Remove this user's folders whose process has ended, wherever such folders are made."""
    for parent in {tempfile.gettempdir(), temporary(), base(), for_sockets()}:
        sweep(Path(parent))


def sweep(parent: Path) -> None:
    """Remove this user's folders below ``parent`` whose process has ended, unless others can rename what is in it."""
    if open_to_others(parent / _NEW) is not None:
        return
    for path in parent.glob("manyheads-*-*"):
        with suppress(OSError):
            if path.is_symlink() or path.lstat().st_uid != os.getuid():
                continue
            if path.name.startswith(_NEW) and time.time() - path.lstat().st_mtime > _NEW_SECONDS:
                shutil.rmtree(path, ignore_errors=True)
            if not _NAME.fullmatch(path.name):
                continue
            lock = os.open(path / _LOCK, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
            try:
                if try_lock(lock):
                    shutil.rmtree(path, ignore_errors=True)
            finally:
                os.close(lock)
