"""The files that a command runs on: private copies of a revision, or of the working tree."""

import hashlib
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from manyheads.runner.errors import ConfigurationError, printable
from manyheads.runner.provenance.git import git
from manyheads.runner.run.files import make_folder
from manyheads.runner.run.ledger import JUDGED
from manyheads.runner.run.progress import say

MOST_BYTES = 2**30  # that are copied for each run
OUTPUT = {".csv", ".jsonl", ".log", ".out", ".tmp", ".tsv", ".txt"}  # of untracked files: these may change meanwhile


@dataclass(frozen=True)
class Project:
    """The files around the working directory. ``top``: the repository's folder, without one the working directory."""

    top: Path
    is_repository: bool

    @classmethod
    def around(cls, folder: Path) -> "Project":
        """The project around a folder."""
        top = git(folder, "rev-parse", "--show-toplevel").decode().strip()
        return cls(Path(top or folder).resolve(), bool(top))

    @property
    def within(self) -> PurePosixPath:
        """The working directory, relative to ``top``."""
        return PurePosixPath(Path.cwd().resolve().relative_to(self.top))

    def write_working_tree(self, tree: Path, *, without: Sequence[Path]) -> str:
        """Copy the tracked and the unignored files of the working tree; returns a digest of those that are code.

        ``without``: files and folders that are not copied. Raises ConfigurationError if there is too much.
        """
        digest, size, tracked = hashlib.sha256(), 0, {*self._listed("--cached")}
        make_folder(tree)
        for name in self._names(without):
            source, path = self.top / name, tree / name
            size += source.lstat().st_size
            if size > MOST_BYTES:
                raise ConfigurationError(
                    f"the files of {self.top} have more than {MOST_BYTES >> 30} GB, and each run gets a copy of them. "
                    "Have git ignore what is data, and name it with --share.",
                    key="--share",
                )
            make_folder(path.parent)
            shutil.copy2(source, path, follow_symlinks=False)
            if name in tracked or name.suffix not in OUTPUT:
                content = os.readlink(path).encode() if path.is_symlink() else path.read_bytes()
                digest.update(repr((str(name), source.lstat().st_mode, hashlib.sha256(content).hexdigest())).encode())
        return digest.hexdigest()

    def ignored(self, name: str) -> list[str]:
        """The files and folders at or in a path that git ignores; the path itself if there are none."""
        listed = self._listed("--others", "--ignored", "--exclude-standard", "--directory", "--", name)
        return [str(path) for path in listed if path.is_relative_to(name)] or [name]

    def _names(self, without: Sequence[Path]) -> Iterator[PurePosixPath]:
        listed = self._listed("--cached", "--others", "--exclude-standard") if self.is_repository else self._all()
        for name in sorted({*listed}):
            path = self.top / name
            of_judgement = any((self.top / folder / JUDGED).is_file() for folder in name.parents)
            if of_judgement or any(path.is_relative_to(other) for other in without):
                continue
            if path.is_dir() and not path.is_symlink():
                say(f"{printable(name)} is another repository, and is not copied: name it with --share")
            elif path.is_file() or path.is_symlink():
                yield name

    def _listed(self, *which: str) -> list[PurePosixPath]:
        names = (
            git(self.top, "--literal-pathspecs", "ls-files", "-z", *which).split(b"\0") if self.is_repository else []
        )
        return [PurePosixPath(os.fsdecode(name)) for name in names if name]

    def _all(self) -> Iterator[PurePosixPath]:
        for folder, _, files in os.walk(self.top):
            yield from (PurePosixPath(folder, name).relative_to(self.top) for name in files)


def fingerprints(folder: Path, names: Sequence[str] = (".",), *, read: bool = True) -> dict[str, tuple[object, ...]]:
    """By path, what changes whenever a file is changed, also if it is restored: inode, times, size, and its bytes.

    ``names``: files and folders in ``folder``; a missing one has no entry. ``read``: whether their bytes count.
    """
    prints: dict[str, tuple[object, ...]] = {}
    for name in names:
        root = folder / name
        for path in [root, *[Path(above, entry) for above, _, entries in os.walk(root) for entry in entries]]:
            try:
                status = path.lstat()
                content = hashlib.sha256(path.read_bytes()).hexdigest() if read and path.is_file() else ""
            except OSError:
                continue
            if not path.is_dir() or path.is_symlink():
                prints[str(path.relative_to(folder))] = (status.st_mode, status.st_ino, status.st_ctime_ns, content)
    return prints


def changed(before: Mapping[str, tuple[object, ...]], after: Mapping[str, tuple[object, ...]]) -> list[str]:
    """The paths that differ between two results of ``fingerprints``."""
    return sorted(name for name in before.keys() | after.keys() if before.get(name) != after.get(name))
