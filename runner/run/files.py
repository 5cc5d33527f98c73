"""Files that are either complete or absent, a lock for what only one process may do, and fresh folders."""

import errno
import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from fnmatch import fnmatchcase
from pathlib import Path
from stat import S_ISLNK
from typing import IO

from manyheads.runner.errors import ConfigurationError
from manyheads.runner.run.folder import Folder, aside

FULL = (errno.ENOSPC, errno.EDQUOT)
FAILED = (errno.EROFS, errno.EIO, errno.ESTALE)


@contextmanager
def whole_file(path: Path) -> Iterator[IO[bytes]]:
    """A context with a file to write, which replaces ``path`` once it is complete and synced.

    Raises an OSError that names ``path`` when the disk is full or fails, whatever error the writer turns that into, and
    ConfigurationError if the folder is a link.
    """
    with Folder(path.parent) as folder:
        beside = aside(path.name)
        try:
            handle = folder.descriptor(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
            with open(handle, "wb") as file:
                yield file
                file.flush()
                os.fsync(file.fileno())
            os.replace(beside, path.name, src_dir_fd=folder.handle, dst_dir_fd=folder.handle)
        except Exception as error:
            if failed := _came_from(error, (*FULL, *FAILED)):
                raise OSError(failed.errno, failed.strerror, str(path)) from error
            raise
        finally:
            with suppress(OSError):  # it was renamed, or the disk fails
                os.unlink(beside, dir_fd=folder.handle)
        folder.sync()  # the new name survives a power cut too


def write_whole(path: Path, content: str | bytes) -> None:
    """Write ``path`` so that it holds the old or the new content at any instant."""
    with whole_file(path) as file:
        file.write(content.encode() if isinstance(content, str) else content)


def disk_full(error: BaseException | None) -> OSError | None:
    """The error of a full disk, or of a full quota, that ``error`` is or came from; None for any other error."""
    return _came_from(error, FULL)


def _came_from(error: BaseException | None, numbers: tuple[int, ...]) -> OSError | None:
    """The error with one of these numbers that ``error`` is or came from; the chain may be circular."""
    seen = set[int]()
    while error is not None and id(error) not in seen:
        if isinstance(error, OSError) and error.errno in numbers:
            return error
        seen.add(id(error))
        error = error.__cause__ or error.__context__
    return None


def also_named(path: Path, name: Path) -> None:
    """Give the file ``path`` a second name in its folder, a hard link, in place of whatever had that name."""
    with Folder(path.parent) as folder:
        beside, at = aside(name.name), {"src_dir_fd": folder.handle, "dst_dir_fd": folder.handle}
        os.link(path.name, beside, follow_symlinks=False, **at)
        os.replace(beside, name.name, **at)


def take_name(beside: Path, path: Path) -> None:
    """Give a file or folder, which is complete and synced, the unused name ``path``."""
    with Folder(path.parent) as folder:
        os.rename(beside.name, path.name, src_dir_fd=folder.handle, dst_dir_fd=folder.handle)
        folder.sync()


def make_folder(path: Path, *, mode: int = 0o777) -> None:
    """Create a folder and those above it that are missing; does nothing if it exists. Raises as ``Folder``."""
    try:
        with Folder(path.parent) as folder:
            folder.make(path.name, mode)
    except FileNotFoundError:
        make_folder(path.parent, mode=mode)
        make_folder(path, mode=mode)


def matching(folder: Path, pattern: str) -> list[Path]:
    """The paths in a folder that match ``pattern``, sorted, without links; none if the folder does not exist."""
    try:
        with Folder(folder) as held:
            stats = held.list()
    except (FileNotFoundError, NotADirectoryError):
        return []
    return [folder / name for name, info in stats.items() if fnmatchcase(name, pattern) and not S_ISLNK(info.st_mode)]


def remove_if_empty(path: Path) -> None:
    """Remove a folder that holds nothing; any other one stays."""
    with suppress(OSError), Folder(path.parent) as folder:
        os.rmdir(path.name, dir_fd=folder.handle)


def remove(path: Path) -> None:
    """Remove a file, or a folder without ever leaving half of it under its name; does nothing if there is none."""
    with suppress(FileNotFoundError), Folder(path.parent) as folder:
        folder.remove(path.name, ignore_errors=True)


def sync_folder(path: Path) -> None:
    """Make the names in the folder survive a power cut."""
    with Folder(path) as folder:
        folder.sync()


def remove_leftovers(path: Path) -> None:
    """Remove what killed writers left below ``path``. Nobody else may be writing there."""
    with suppress(FileNotFoundError), Folder(path) as folder:
        for name in [name for name, _ in folder.walk() if name.match(".*.aside")]:
            with suppress(FileNotFoundError):  # its folder has been removed
                folder.remove(name, ignore_errors=True)


# The kernel's lock on the file itself: it ends with its process, however that ends, a run folder needs no further file
# for it, and it can be tested in a read-only folder too. filelock opens the file that it locks for writing and, in many
# versions, empties it, so it would need a separate file beside each.


@contextmanager
def exclusive(path: Path, *, of: object) -> Iterator[None]:
    """Hold the lock on a file that exists.

    Raises ConfigurationError, which names ``of``, if another process holds it or the file can't be written.
    """
    try:
        # Over NFS an exclusive lock needs a file that is open for writing.
        file = open(path, "r+b", opener=_lock_file)  # noqa: SIM115
    except PermissionError:
        raise ConfigurationError(f"{of} cannot be run: you have no permission to write its {path.name}.") from None
    except OSError as error:  # such as of a read-only disk
        raise ConfigurationError(f"{of} cannot be run: {path.name}: {error.strerror}.") from None
    with file:
        if not try_lock(file):
            raise ConfigurationError(f"{of} is being run by another process. Wait for it, or end it.")
        with _released(file):
            yield


@contextmanager
def in_turn(path: Path) -> Iterator[None]:
    """Hold the lock on a lock file, which is created if necessary; waits while another process holds it."""
    with open(path, "ab", opener=_lock_file) as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        with _released(file):
            yield


def is_locked(path: Path) -> bool:
    """Whether a process holds the lock on a file that exists."""
    with open(path, "rb", opener=_lock_file) as file, _released(file):
        return not try_lock(file, fcntl.LOCK_SH)


@contextmanager
def _released(file: IO[bytes]) -> Iterator[None]:
    """Release the file's lock at the end. Closing the file would not, if another thread's fork has a copy."""
    owner = os.getpid()
    try:
        yield
    finally:
        if os.getpid() == owner:  # in a fork it is the lock of the process that holds it
            fcntl.flock(file, fcntl.LOCK_UN)


def lock_shared(descriptor: int) -> None:
    """Hold a shared lock on an open file, until the descriptor and all its copies are closed."""
    fcntl.flock(descriptor, fcntl.LOCK_SH)


def try_lock(file: IO[bytes] | int, kind: int = fcntl.LOCK_EX) -> bool:
    """Try to get a lock on an open file, for as long as ``lock_shared``; returns whether that succeeded."""
    try:
        fcntl.flock(file, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def try_part(descriptor: int, byte: int) -> bool:
    """Try to get the exclusive lock on this byte of an open file; returns whether that succeeded.

    It belongs to this process alone, not to its forks, and lasts until the process ends or closes any descriptor of the
    file.
    """
    try:
        fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, byte)
    except (BlockingIOError, PermissionError):  # systems say it in either way
        return False
    return True


def unlock(descriptor: int) -> None:
    """Release the lock on an open file, also if a fork of another thread has a copy of its descriptor."""
    fcntl.flock(descriptor, fcntl.LOCK_UN)


def _lock_file(path: str, flags: int) -> int:
    """An opener for a file that is not written to, and may have further names, as in a backup of hard links."""
    with Folder(Path(path).parent) as folder:
        return folder.descriptor(Path(path).name, flags | os.O_NONBLOCK)


def fresh_folder(path: Path) -> Path:
    """Create ``path``, or the first of path_2, path_3, ... that does not exist."""
    candidate, number = path, 1
    while True:
        try:
            candidate.mkdir(parents=True)
            return candidate
        except FileExistsError:
            number += 1
            candidate = path.with_name(f"{path.name}_{number}")
