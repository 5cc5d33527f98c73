"""A folder that somebody else sent, or that others write to as well, held open: the only way to the files in it."""

import errno
import os
import secrets
import shutil
import stat
from collections.abc import Iterator
from contextlib import suppress
from functools import lru_cache
from pathlib import Path, PurePath
from typing import IO, NamedTuple, Self

from manyheads.runner.errors import ConfigurationError, printable

MOST_BYTES = 2**24  # limit for a file that is read as a whole
MOST_HOLES = 64  # times the bytes on the disk that a large file may have, if the file system compresses it
_HOLD = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_LINK = (errno.ELOOP, errno.EMLINK)  # how systems say that the last part of a path is a link


class Inode(NamedTuple):
    """Identifies the file that a name refers to: a file that replaces it has another inode."""

    device: int
    number: int

    @classmethod
    def of(cls, status: os.stat_result) -> Self:
        """The inode that a status describes."""
        return cls(status.st_dev, status.st_ino)


class Folder:
    """A folder held by its descriptor. Use it in a ``with`` statement, which closes it.

    ``path``: without links, absolute or relative to the working directory; resolve what a user typed first, once.
    Whatever is in the folder is reached from its descriptor, part by part, and no part is followed that is a link: so
    nothing outside is read, written or removed, even if somebody replaces folders by links at the same time. Names are
    relative to the folder, may have several parts (``logs/rank_0.log``), and cannot contain ``..``.

    Raises ConfigurationError for a link in ``path`` or in a name, and OSError for what is missing or forbidden.
    """

    def __init__(self, path: Path):
        self.path = path
        self.handle = -1
        start = path.parts[0] if path.is_absolute() else "."
        self.handle = _descend(os.open(start, _HOLD), path.parts[path.is_absolute() :], shown=path)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self.handle >= 0:
            os.close(self.handle)
        self.handle = -1

    @property
    def inode(self) -> Inode:
        """This folder's inode."""
        return Inode.of(os.stat(self.handle))

    def child(self, name: str | PurePath) -> "Folder":
        """A folder below this one, held by its own descriptor."""
        folder = Folder.__new__(Folder)
        folder.path, folder.handle = self.path / name, -1
        parts = _inside(name, self.path).parts
        folder.handle = _descend(os.dup(self.handle), parts, shown=folder.path)
        return folder

    def status(self, name: str | PurePath) -> os.stat_result:
        """The result of ``lstat``, also for a link."""
        with self.child(_inside(name, self.path).parent) as parent:
            return os.stat(PurePath(name).name, dir_fd=parent.handle, follow_symlinks=False)

    def descriptor(self, name: str | PurePath, flags: int) -> int:
        """An entry's descriptor, opened with ``flags``; any kind of entry except a link."""
        inside = _inside(name, self.path)
        if len(inside.parts) > 1:
            with self.child(inside.parent) as parent:
                return parent.descriptor(inside.name, flags)
        try:
            return os.open(inside, flags | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666, dir_fd=self.handle)
        except OSError as error:
            path = self.path / name
            if error.errno in (*_LINK, errno.ENXIO):
                raise refusal(path) from None
            raise OSError(error.errno, error.strerror, str(path)) from None

    def plain(self, name: str | PurePath, flags: int) -> int:
        """A plain file's descriptor.

        Raises ConfigurationError also for a pipe or a device, and for a hard link that would be written to.
        """
        truncates, flags = flags & os.O_TRUNC, flags & ~os.O_TRUNC
        handle = self.descriptor(name, flags | os.O_NONBLOCK)  # a pipe that nobody reads would block
        status = os.fstat(handle)
        writes = flags & (os.O_WRONLY | os.O_RDWR)
        if not stat.S_ISREG(status.st_mode) or (writes and status.st_nlink > 1):
            os.close(handle)
            raise refusal(self.path / name)
        if truncates:
            os.ftruncate(handle, 0)
        return handle

    def open(self, name: str | PurePath, mode: str = "rb", **options: object) -> IO:
        """A plain file as the built-in ``open`` returns it, with the same modes and options. Raises as ``plain``."""
        return open(os.fspath(name), mode, opener=lambda path, flags: self.plain(path, flags), **options)  # type: ignore[call-overload]

    def read(self, name: str | PurePath, *, most: int = MOST_BYTES) -> bytes:
        """A file's content. Raises ConfigurationError for more than ``most`` bytes, and for holes."""
        handle = self.plain(name, os.O_RDONLY)
        try:
            status = os.fstat(handle)
            size = status.st_size
            if size > MOST_BYTES and size > MOST_HOLES * 512 * status.st_blocks:
                raise ConfigurationError(f"{printable(self.path / name)} is nearly all holes, and is not read.")
            content = _up_to(min(size, most) + 1, handle)  # Python allocates as much as it is asked to read
            if len(content) > size:  # it has grown since
                content += _up_to(max(0, most + 1 - len(content)), handle)
        finally:
            os.close(handle)
        if len(content) > most:
            raise ConfigurationError(f"{printable(self.path / name)} has more than {most} bytes, and is not read.")
        return content

    def make(self, name: str, mode: int = 0o777) -> None:
        """Create a folder in this one; does nothing if it exists."""
        try:
            with suppress(FileExistsError):
                os.mkdir(name, mode, dir_fd=self.handle)
        except OSError as error:
            raise OSError(error.errno, error.strerror, str(self.path / name)) from None
        with self.child(name):  # neither a link nor a file
            return

    def list(self) -> dict[str, os.stat_result]:
        """The names in the folder, sorted, each with what ``lstat`` returns."""
        handle = os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=self.handle)
        try:
            statuses = {}
            for name in sorted(os.listdir(handle)):
                with suppress(FileNotFoundError):  # it was removed at the same time
                    statuses[name] = os.stat(name, dir_fd=handle, follow_symlinks=False)
            return statuses
        finally:
            os.close(handle)

    def walk(self) -> Iterator[tuple[PurePath, os.stat_result]]:
        """Everything below, each folder before its content, with its relative path; links are not followed."""
        try:
            entries = self.list()
        except OSError as error:
            raise OSError(error.errno, error.strerror, str(self.path)) from None
        for name, status in entries.items():
            yield PurePath(name), status
            if stat.S_ISDIR(status.st_mode):
                with suppress(FileNotFoundError), self.child(name) as inner:
                    yield from ((name / path, inner_status) for path, inner_status in inner.walk())

    def remove(self, name: str | PurePath, *, only: Inode | None = None, ignore_errors: bool = False) -> None:
        """Remove a file, a link or a folder with everything in it; a folder never remains half removed under its name.

        only: what may be removed; ignore_errors: what is in a folder may remain, under another name. Raises
        ConfigurationError, without removing anything, if the name stands for another file or folder than ``only``.
        """
        with self.child(_inside(name, self.path).parent) as parent:
            last, at = PurePath(name).name, {"dir_fd": parent.handle}
            status = os.stat(last, follow_symlinks=False, **at)
            if only not in (None, Inode.of(status)):
                raise _replaced(self.path / name)
            if not stat.S_ISDIR(status.st_mode):
                os.unlink(last, **at)
                return
            beside = aside(last)
            os.rename(last, beside, src_dir_fd=parent.handle, dst_dir_fd=parent.handle)
            if Inode.of(os.stat(beside, follow_symlinks=False, **at)) != Inode.of(status):
                os.rename(beside, last, src_dir_fd=parent.handle, dst_dir_fd=parent.handle)
                raise _replaced(self.path / name)
            parent.sync()
            shutil.rmtree(beside, ignore_errors=ignore_errors, dir_fd=parent.handle)

    def refuse_links(self) -> None:
        """Raises ConfigurationError for any link that points outside, pipe or device below, and for unlistable folders.

        For programs that open the folder's files by themselves.
        """
        inside = self.path.resolve()
        try:
            for name, status in self.walk():
                path = self.path / name
                if stat.S_ISLNK(status.st_mode):
                    if not Path(os.path.realpath(path)).is_relative_to(inside):
                        raise ConfigurationError(
                            f"{printable(path)} points outside {printable(self.path)}. Remove that link."
                        )
                elif not stat.S_ISREG(status.st_mode) and not stat.S_ISDIR(status.st_mode):
                    raise refusal(path)
        except OSError as error:  # a folder that can't be listed may still be entered
            raise ConfigurationError(f"{printable(error.filename)} cannot be read: {error.strerror}.") from None

    def sync(self) -> None:
        """Make the names in the folder survive a power cut."""
        handle = os.open(".", os.O_RDONLY | os.O_DIRECTORY, dir_fd=self.handle)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def aside(name: str) -> str:
    """A unique name next to ``name``, for something incomplete or about to be removed."""
    return f".{name}.{secrets.token_hex(8)}.aside"


def refusal(path: PurePath) -> ConfigurationError:
    """The error for a link, a pipe or a device."""
    return ConfigurationError(
        f"{printable(path)} is a link or not a plain file, and could point outside its folder. Replace it with a copy."
    )


def _replaced(path: Path) -> ConfigurationError:
    return ConfigurationError(f"{printable(path)} was replaced while it was being examined, and stays. Try again.")


def _up_to(count: int, handle: int) -> bytes:
    """The next ``count`` bytes of a file, or all that are left."""
    content = os.read(handle, count)
    while len(content) < count and (more := os.read(handle, count - len(content))):
        content += more
    return content


_path = lru_cache(maxsize=256)(PurePath)  # the same few files are read in every run


def _inside(name: str | PurePath, folder: Path) -> PurePath:
    """The name as a path. Raises ConfigurationError if it points outside the folder."""
    path = _path(name)
    if path.is_absolute() or ".." in path.parts:
        raise ConfigurationError(f"{printable(path)} points outside {printable(folder)}. Allowed: names in it.")
    return path


def _descend(handle: int, parts: tuple[str, ...], *, shown: Path) -> int:
    """The descriptor of a folder below ``handle``, which is closed."""
    for part in parts:
        try:
            inner = os.open(part, _HOLD, dir_fd=handle)
        except OSError as error:
            if error.errno in _LINK or (error.errno == errno.ENOTDIR and _is_link(part, handle)):
                raise refusal(shown) from None
            raise OSError(error.errno, error.strerror, str(shown)) from None
        finally:
            os.close(handle)
        handle = inner
    return handle


def _is_link(name: str, folder: int) -> bool:
    try:
        return stat.S_ISLNK(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode)
    except OSError:
        return False
