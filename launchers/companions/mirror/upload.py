"""Copies a run's folder to object storage, file by file; the copy is valid once all is stored and verified."""

import hashlib
import os
import shutil
import stat
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, suppress
from pathlib import PurePath
from typing import IO, TYPE_CHECKING, NamedTuple

from manyheads.runner.checkpoint.mirror_manifest import NAME, OBJECTS, Copy, MirrorManifest, is_object, object_name
from manyheads.runner.errors import ConfigurationError
from manyheads.runner.run.folder import Folder
from manyheads.runner.run.leaving import may_leave
from manyheads.runner.run.objects import MissingObject, StorageError
from manyheads.runner.run.run_folder import RunFolder

if TYPE_CHECKING:
    from manyheads.runner.run.objects.storage.storage import Storage

CHECKPOINTS = "checkpoints"
MOST_OPEN = 512  # files of checkpoints


class _State(NamedTuple):
    """Identifies the content of a file that is never changed in place."""

    inode: int
    size: int
    mtime_ns: int


class Mirror:
    """The copy of one run. ``stored``: its marker; None before it was read."""

    def __init__(self, folder: RunFolder, storage: "Storage"):
        self.folder, self.storage = folder, storage
        self.run = hashlib.sha256(folder.config_content()).hexdigest()
        self.stored: MirrorManifest | None = None
        self._digests: dict[_State, str] = {}
        self._others: set[str] | None = None  # objects that may exist although no marker names them

    def look(self) -> None:
        """Read the stored marker. Raises StorageError, and ConfigurationError if it belongs to another run."""
        self.stored = self._read()
        if self.stored.run != self.run:
            raise ConfigurationError.at(
                "checkpoint.mirror", self.storage.address, " holds another run. Set it to an address without one."
            )

    def update(self) -> None:
        """Store new files, then the marker; remove objects that it no longer names. Raises StorageError, OSError."""
        if self.stored is None:
            self.look()
        assert self.stored is not None
        objects = {copy.sha256: copy.object for copy in self.stored.files.values()}
        files = {}
        with ExitStack() as stack:
            for path, file, mtime_ns in self._opened(stack):
                files[path] = self._stored(path, file, mtime_ns, objects)
                objects[files[path].sha256] = files[path].object
        manifest = MirrorManifest(self.run, files)
        content = manifest.content()
        if manifest.files != self.stored.files:
            with tempfile.TemporaryFile() as marker:
                marker.write(content)
                marker.flush()
                self.storage.store(NAME, marker)
            if self.storage.read(NAME) != content:
                raise StorageError(f"{NAME} was read back with other content than was stored")
        before, self.stored = self.stored, manifest
        self._clear(before.objects, manifest.objects)

    def lacks(self) -> list[str]:
        """Paths of the files whose present content is not stored."""
        stored = self.stored.files if self.stored else {}
        return [path for path, status in self._paths() if not _same(stored.get(path), status)]

    def _read(self) -> MirrorManifest:
        try:
            return MirrorManifest.parse(self.storage.read(NAME), of=self.storage.address)
        except MissingObject:
            return MirrorManifest(self.run, {})

    def _paths(self) -> Iterator[tuple[str, os.stat_result]]:
        """The files of the run, checkpoints first: table rows that belong to one were written before it, and remain."""
        with Folder(self.folder.path) as held:
            files = [(path, status) for path, status in held.walk() if stat.S_ISREG(status.st_mode)]
        for path, status in sorted(files, key=lambda pair: (pair[0].parts[0] != CHECKPOINTS, pair[0])):
            if may_leave(path):
                yield str(path), status

    def _opened(self, stack: ExitStack) -> Iterator[tuple[str, IO[bytes], int]]:
        """The open files; those of checkpoints are all opened at once, so that they show one moment."""
        with Folder(self.folder.path) as held:
            paths = [path for path, _ in self._paths()]
            of_checkpoints = [path for path in paths if PurePath(path).parts[0] == CHECKPOINTS]
            open_now = [(path, stack.enter_context(held.open(path))) for path in of_checkpoints[:MOST_OPEN]]
            for path, file in open_now:
                yield path, file, os.fstat(file.fileno()).st_mtime_ns
            for path in [*of_checkpoints[MOST_OPEN:], *(path for path in paths if path not in {*of_checkpoints})]:
                with suppress(FileNotFoundError), held.open(path) as file, tempfile.TemporaryFile() as copy:
                    shutil.copyfileobj(file, copy)  # it may grow meanwhile
                    yield path, copy, os.fstat(file.fileno()).st_mtime_ns

    def _stored(self, path: str, file: IO[bytes], mtime_ns: int, objects: Mapping[str, str]) -> Copy:
        """Store a file, unless its digest is in ``objects``, which maps the digests of stored objects to their names.

        Raises StorageError if other content is read back.
        """
        file.seek(0)
        status = os.fstat(file.fileno())
        state = _State(status.st_ino, status.st_size, status.st_mtime_ns)
        digest = self._digests.get(state) or hashlib.file_digest(file, "sha256").hexdigest()  # type: ignore[arg-type]
        if path.startswith(f"{CHECKPOINTS}/"):
            self._digests[state] = digest
        name = objects.get(digest) or object_name(path, digest)
        if digest not in objects:
            if self._others is not None:
                self._others.add(name)
            self.storage.store(name, file)
            if self.storage.sha256(name) != digest:
                self.storage.remove(name)
                raise StorageError(f"{path} was read back with other content than was stored")
        return Copy(status.st_size, digest, mtime_ns, name)

    def _clear(self, before: set[str], needed: set[str]) -> None:
        """Remove the objects that the marker does not name, such as those of an upload that was killed."""
        if self._others is None:
            self._others = {stored.name for stored in self.storage.list(OBJECTS) if is_object(stored.name)}
        self._others |= before
        for name in sorted(self._others - needed):
            self.storage.remove(name)
        self._others = set()


def _same(stored: Copy | None, status: os.stat_result) -> bool:
    return stored is not None and (stored.size, stored.mtime_ns) == (status.st_size, status.st_mtime_ns)
