"""A cache of parts of objects on the local disk, shared by all processes of this user; evicts the least recently used.

An entry is complete whenever it has a name, so a process may be killed at any moment. Its content is not trusted:
readers compare checksums.
"""

import os
import time
from collections.abc import Iterable
from contextlib import suppress
from itertools import chain
from pathlib import Path

from manyheads.runner.errors import printable
from manyheads.runner.machine.user_folders import create_private
from manyheads.runner.run.files import in_turn
from manyheads.runner.run.folder import aside
from manyheads.runner.run.objects import Cache, StorageError

KEPT = 7 / 8  # of the limit, after an eviction
LEFT_SECONDS = 3600.0  # after which an incomplete file was left by a killed process
_DIGITS = 20
_TMPFILE = getattr(os, "O_TMPFILE", 0)


def path_of(folder: Path, name: str) -> str:
    """The file of an entry. ``name``: hexadecimal digits."""
    return f"{folder}/{name[:2]}/{name}"  # joining paths would take longer than opening the file


def find(folder: Path, name: str) -> int | None:
    """The descriptor of an entry, which then counts as just used; None if there is none."""
    try:
        handle = os.open(path_of(folder, name), os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return None
    with suppress(OSError):  # of a read-only folder
        os.utime(handle)
    return handle


class DiskCache:
    """The entries in a folder, for the processes that add to them."""

    def __init__(self, cache: Cache):
        self.folder, self.most = cache
        try:
            create_private(self.folder)
            self.folder = self.folder.resolve()
        except OSError as error:
            raise self._failed(error) from None

    def find(self, name: str) -> int | None:
        """As the function ``find``, in this folder."""
        return find(self.folder, name)

    def drop(self, name: str) -> None:
        """Remove an entry whose content is wrong."""
        with suppress(OSError):
            os.unlink(path_of(self.folder, name))

    def add(self, name: str, parts: Iterable[bytes]) -> int:
        """Write an entry; returns its descriptor. Raises StorageError if it does not fit, and what ``parts`` raises."""
        path = Path(path_of(self.folder, name))
        try:
            path.parent.mkdir(mode=0o700, exist_ok=True)
            handle, beside = _new(path)
            try:
                size = sum(_write(handle, part) for part in parts)
                if size > self.most:
                    raise StorageError(f"{size:,} bytes do not fit into a cache of {self.most:,}")
                with in_turn(self.folder / "lock"):
                    self._make_room(size)
                    with suppress(FileExistsError):  # another process was faster
                        _name(handle, beside, path)
            except BaseException:
                os.close(handle)
                raise
            finally:
                if beside is not None:
                    beside.unlink(missing_ok=True)
        except OSError as error:
            raise self._failed(error) from None
        return handle

    def _make_room(self, size: int) -> None:
        """Account for another entry, and evict others if necessary. The caller holds the lock."""
        account = self.folder / "used"
        try:
            used = int(account.read_bytes()) + size
        except (OSError, ValueError):
            used = self.most + 1
        if used > self.most:
            used = self._evict(min(self.most - size, int(KEPT * self.most))) + size
        account.write_bytes(b"%*d" % (_DIGITS, used))

    def _evict(self, most: int) -> int:
        """Remove the least recently used entries until ``most`` bytes are left; returns the bytes that are left."""
        files = []
        for file in chain.from_iterable(_entries(folder.path) for folder in _entries(self.folder) if folder.is_dir()):
            with suppress(OSError):
                status = file.stat(follow_symlinks=False)
                if file.name.startswith(".") and time.time() - status.st_mtime < LEFT_SECONDS:
                    continue  # somebody still writes it
                files.append((status.st_mtime_ns, status.st_size, file.path))
        left = sum(size for _, size, _ in files)
        for _, size, path in sorted(files):
            if left <= most:
                break
            with suppress(OSError):
                os.unlink(path)
                left -= size
        return left

    def _failed(self, error: OSError) -> StorageError:
        return StorageError(f"the cache {printable(self.folder)} cannot be written ({error.strerror})")


def _entries(folder: str | Path) -> list[os.DirEntry[str]]:
    with suppress(OSError), os.scandir(folder) as entries:
        return list(entries)
    return []


def _new(path: Path) -> tuple[int, Path | None]:
    """Create a file without a name, or with a temporary one if the file system needs that."""
    flags = os.O_RDWR | os.O_CLOEXEC
    if _TMPFILE:
        with suppress(OSError):
            return os.open(path.parent, flags | _TMPFILE, 0o600), None
    beside = path.with_name(aside(path.name))
    return os.open(beside, flags | os.O_CREAT | os.O_EXCL, 0o600), beside


def _write(handle: int, part: bytes) -> int:
    view = memoryview(part)
    while view:
        view = view[os.write(handle, view) :]
    return len(part)


def _name(handle: int, beside: Path | None, path: Path) -> None:
    if beside is not None:
        os.link(beside, path)
    else:  # follows the link that stands for the file, since a folder is named
        os.link(f"/proc/self/fd/{handle}", path, src_dir_fd=handle, follow_symlinks=True)
