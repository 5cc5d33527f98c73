"""The image files of class folders, held in a few bytes each: a million paths as strings take 130 MB in every rank.

Strings would also be copied in each loader process, since counting a reference writes beside the string.
"""

import hashlib
import os
import struct
import sys
import time
import zlib
from array import array
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import reduce
from itertools import accumulate, islice
from pathlib import Path
from typing import overload

from manyheads.runner.data.links import boundary, opened, refuse_leaving
from manyheads.runner.machine.user_folders import user_folder
from manyheads.runner.run.files import whole_file

EXTENSIONS = (".jpg", ".jpeg", ".png", ".ppm", ".bmp", ".pgm", ".tif", ".tiff", ".webp")


@dataclass(frozen=True)
class Listing:
    """File names, class by class, sorted within each. ``names``: the bytes of all names, without separators.

    ``ends``: where each name ends; ``counts``: how many files each class has. Both are arrays of 64 bits.
    """

    names: bytes
    ends: array
    counts: array

    def __len__(self) -> int:
        return len(self.ends)

    def targets(self) -> array:
        """The class number of each file."""
        numbers = array("i")
        for number, count in enumerate(self.counts):
            numbers.extend(array("i", [number]) * count)
        return numbers


@dataclass(frozen=True)
class Paths(Sequence[str]):
    """The paths of a listing, each built on access. ``folder``: holds the class folders."""

    folder: Path
    classes: list[str]
    listing: Listing
    targets: array = field(repr=False)

    def __len__(self) -> int:
        return len(self.listing)

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> list[str]: ...
    def __getitem__(self, index: int | slice) -> str | list[str]:
        if isinstance(index, slice):
            return [self[each] for each in range(len(self))[index]]
        at = range(len(self))[index]
        ends = self.listing.ends
        name = os.fsdecode(self.listing.names[ends[at - 1] if at else 0 : ends[at]])
        return f"{self.folder}/{self.classes[self.targets[at]]}/{name}"


def scan(folders: Iterable[Path], *, root: Path) -> Listing:
    """The image files directly in these folders, found by reading them.

    Raises ConfigurationError for a link that points outside ``root``.
    """
    names, ends, counts, within = bytearray(), array("Q"), array("Q"), boundary(root)
    for folder in folders:
        with opened(folder, within) as handle, os.scandir(handle) as entries:
            images = [entry for entry in entries if entry.name.lower().endswith(EXTENSIONS)]
        for entry in images:
            if entry.is_symlink():  # known from reading the folder
                refuse_leaving(folder / entry.name, within)
        found = sorted(entry.name for entry in images)
        joined = os.fsencode("\0".join(found))  # name by name it takes longer than reading the folder
        lengths = map(len, joined.split(b"\0")) if found else ()
        ends.extend(islice(accumulate(lengths, initial=len(names)), 1, None))
        names += joined.replace(b"\0", b"")
        counts.append(len(found))
    return Listing(bytes(names), ends, counts)


FEWEST_FILES = 10_000  # fewer are found within milliseconds
FEWEST_IN_A_CLASS = 10  # on average: asking for a folder's times takes as long as reading a small one
SETTLED = 2 * 10**9  # nanoseconds: FAT's clock ticks every two seconds, others' every few milliseconds
MOUNTS = Path("/proc/self/mountinfo")
HEADER = struct.Struct("=32sIQQQ")  # what was indexed; checksum of the rest; classes, files, bytes of names
State = list[os.stat_result]


def list_images(folder: Path, classes: Sequence[str]) -> Listing:
    """The image files of these class folders: from the cache if the folders are unchanged, else by reading them.

    Raises ConfigurationError for a link that points outside the folder that holds all splits.
    """
    folders = [folder / name for name in classes]
    now, state = time.time_ns(), [os.stat(each) for each in folders]  # before they are read
    file, key = _file(folder), _key(folder, classes, state)
    if file is not None and (known := _read(file, key)) is not None:
        return known
    listing = scan(folders, root=folder.parent)
    is_worth_it = len(listing) >= max(FEWEST_FILES, FEWEST_IN_A_CLASS * len(classes))
    if file is not None and is_worth_it and _is_settled(state, now) and not _is_fuse(state):
        with suppress(OSError):  # the next start will have to scan again
            _write(file, key, listing)
    return listing


def _file(folder: Path) -> Path | None:
    """The file of a folder's index; None for a user without a home."""
    cache = user_folder("cache")
    name = hashlib.sha256(os.fsencode(folder.absolute())).hexdigest()[:32]
    return None if cache is None else cache / "manyheads" / "image_folders" / name


def _key(folder: Path, classes: Sequence[str], state: State) -> bytes:
    """All that an index depends on, in 32 bytes. It includes ctime, which cannot be set back, unlike mtime."""
    times = [(each.st_ino, each.st_mtime_ns, each.st_ctime_ns) for each in state]
    about = (1, sys.byteorder, EXTENSIONS, str(folder.absolute()), list(classes), times)
    return hashlib.sha256(repr(about).encode(errors="surrogateescape")).digest()


def _is_settled(state: State, now: int) -> bool:
    """Whether a change after the scan is certain to change a folder's time; git calls such entries "racy" otherwise.

    Source: https://git-scm.com/docs/racy-git.
    """
    return all(max(each.st_mtime_ns, each.st_ctime_ns) < now - SETTLED for each in state)


def _is_fuse(state: State) -> bool:
    """Whether a folder is mounted by a program, such as a bucket of an object store: its times may never change."""
    devices = {f"{os.major(each.st_dev)}:{os.minor(each.st_dev)}" for each in state}
    try:
        mounts = MOUNTS.read_text(errors="replace").splitlines()
    except OSError:
        return False
    kinds = [line.partition(" - ")[2] for line in mounts if line.split(" ", 3)[2] in devices]
    return any(kind.startswith("fuse") for kind in kinds)


def _read(file: Path, key: bytes) -> Listing | None:
    """The listing if it is the one of ``key``, and undamaged."""
    counts, ends = array("Q"), array("Q")
    try:
        with open(file, "rb") as source:
            header = source.read(HEADER.size)
            if len(header) < HEADER.size or header[: len(key)] != key:
                return None
            _, checksum, classes, files, size = HEADER.unpack(header)
            if os.fstat(source.fileno()).st_size != HEADER.size + 8 * (classes + files) + size:
                return None
            parts = [source.read(8 * classes), source.read(8 * files), source.read()]
    except OSError:
        return None
    counts.frombytes(parts[0])
    ends.frombytes(parts[1])
    return Listing(parts[2], ends, counts) if _checksum(parts) == checksum else None


def _write(file: Path, key: bytes, listing: Listing) -> None:
    """Write the index as a whole; if two hosts write it at the same time, the checksum reveals a mixture."""
    parts = [listing.counts.tobytes(), listing.ends.tobytes(), listing.names]
    header = HEADER.pack(key, _checksum(parts), len(listing.counts), len(listing.ends), len(listing.names))
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with whole_file(file.parent.resolve() / file.name) as target:
        target.writelines([header, *parts])


def _checksum(parts: Sequence[bytes]) -> int:
    return reduce(lambda checksum, part: zlib.crc32(part, checksum), parts, 0)
