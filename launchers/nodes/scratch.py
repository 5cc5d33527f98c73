"""A node's private folder, on no shared disk, for its ranks' heartbeat; removes those of killed processes."""

import fcntl
import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

_NAME = re.compile(r"manyheads-[0-9a-f]{16}-\d+")
_LOCK = "lock"


def base() -> str:
    """The parent of such folders: in memory where possible."""
    shared = "/dev/shm"
    return shared if os.access(shared, os.W_OK) else tempfile.gettempdir()


@contextmanager
def own_folder(path: Path) -> Iterator[Path]:
    """Create ``path``, which only this user can enter, and remove it on exit. Raises OSError."""
    sweep(path.parent)
    new = Path(tempfile.mkdtemp(prefix="manyheads-new-", dir=path.parent))
    lock = os.open(new / _LOCK, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        new.rename(path)  # only now, locked, can ``sweep`` find it
        yield path
    finally:
        for each in (new, path):
            shutil.rmtree(each, ignore_errors=True)
        os.close(lock)


def sweep(parent: Path) -> None:
    """Remove this user's folders whose process has ended."""
    for path in parent.glob("manyheads-*-*"):
        with suppress(OSError):
            if not _NAME.fullmatch(path.name) or path.is_symlink() or path.lstat().st_uid != os.getuid():
                continue
            lock = os.open(path / _LOCK, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(path, ignore_errors=True)
            finally:
                os.close(lock)
