"""The image files of class folders, from a cache if the folders are unchanged."""

import hashlib
import json
import os
import struct
import sys
import time
import zlib
from array import array
from collections.abc import Sequence
from contextlib import suppress
from functools import reduce
from pathlib import Path

from manyheads.runner.data.imagefolder_listing import EXTENSIONS, ImageListing, scan
from manyheads.runner.data.left_out import LeftOut
from manyheads.runner.machine.user_folders import cache_folder
from manyheads.runner.run.files import whole_file

FEWEST_FILES = 10_000  # fewer are found within milliseconds
FEWEST_IN_A_CLASS = 10  # on average: asking for a folder's times takes as long as reading a small one
SETTLED = 2 * 10**9  # nanoseconds: FAT's clock ticks every two seconds, others' every few milliseconds
MOUNTS = Path("/proc/self/mountinfo")
# What was indexed; checksum of the rest; classes, files, bytes of names, and of what else is known, as JSON.
HEADER = struct.Struct("=32sIQQQQ")
State = list[os.stat_result]


def list_images(folder: Path, classes: Sequence[str], root: Path | None = None) -> ImageListing:
    """The image files of these class folders: from the cache if the folders are unchanged, else by reading them.

    Raises ConfigurationError for a link that points outside ``root``, the folder that holds all splits.
    """
    folders = [folder / name for name in classes]
    now, state = time.time_ns(), [os.stat(path) for path in folders]  # before they are read
    file, key = _file(folder), _key(folder, classes, state)
    if file is not None and (index := _read(file, key, folder)) is not None:
        return index
    listing = scan(folders, root=root or folder.parent)
    inner = [os.stat(folder / name) for name in listing.inner]
    is_worth_it = len(listing) >= max(FEWEST_FILES, FEWEST_IN_A_CLASS * (len(classes) + len(inner)))
    if file is not None and is_worth_it and _is_settled(state + inner, now) and not _is_fuse(state + inner):
        with suppress(OSError):  # the next start will have to scan again
            _write(file, key, listing, inner)
    return listing


def _file(folder: Path) -> Path | None:
    """The file of a folder's index; None for a user without a home."""
    cache = cache_folder("image_folders")
    return cache and cache / hashlib.sha256(os.fsencode(folder.absolute())).hexdigest()[:32]


def _key(folder: Path, classes: Sequence[str], state: State) -> bytes:
    """All that an index depends on, in 32 bytes. It includes ctime, which cannot be set back, unlike mtime."""
    about = (2, sys.byteorder, EXTENSIONS, str(folder.absolute()), list(classes), _times(state))
    return hashlib.sha256(repr(about).encode(errors="surrogateescape")).digest()


def _times(state: State) -> list[list[int]]:
    return [[status.st_ino, status.st_mtime_ns, status.st_ctime_ns] for status in state]


def _is_settled(state: State, now: int) -> bool:
    """Whether a change after the scan is certain to change a folder's time; git calls such entries "racy" otherwise.

    Source: https://git-scm.com/docs/racy-git.
    """
    return all(max(status.st_mtime_ns, status.st_ctime_ns) < now - SETTLED for status in state)


def _is_fuse(state: State) -> bool:
    """Whether a folder is mounted by a program, such as a bucket of an object store: its times may never change."""
    devices = {f"{os.major(status.st_dev)}:{os.minor(status.st_dev)}" for status in state}
    try:
        mounts = MOUNTS.read_text(errors="replace").splitlines()
    except OSError:
        return False
    kinds = [line.partition(" - ")[2] for line in mounts if line.split(" ", 3)[2] in devices]
    return any(kind.startswith("fuse") for kind in kinds)


def _read(file: Path, key: bytes, folder: Path) -> ImageListing | None:
    """The listing if it is the one of ``key``, undamaged, and the inner folders are unchanged."""
    counts, ends = array("Q"), array("Q")
    try:
        with open(file, "rb") as source:
            header = source.read(HEADER.size)
            if len(header) < HEADER.size or header[: len(key)] != key:
                return None
            _, checksum, classes, files, size, more = HEADER.unpack(header)
            if os.fstat(source.fileno()).st_size != HEADER.size + 8 * (classes + files) + size + more:
                return None
            parts = [source.read(length) for length in (8 * classes, 8 * files, size, more)]
        if _checksum(parts) != checksum:
            return None
        rest = json.loads(parts[3])
        if _times([os.stat(folder / name) for name in rest["inner"]]) != rest["times"]:
            return None
    except OSError:
        return None
    counts.frombytes(parts[0])
    ends.frombytes(parts[1])
    return ImageListing(parts[2], ends, counts, tuple(rest["inner"]), LeftOut(rest["left_out"], tuple(rest["names"])))


def _write(file: Path, key: bytes, listing: ImageListing, inner: State) -> None:
    """Write the index as a whole; if two hosts write it at the same time, the checksum reveals a mixture."""
    others = {"left_out": listing.left_out.count, "names": listing.left_out.names}
    rest = json.dumps({"inner": listing.inner, "times": _times(inner), **others}).encode()
    parts = [listing.counts.tobytes(), listing.ends.tobytes(), listing.names, rest]
    sizes = len(listing.counts), len(listing.ends), len(listing.names), len(rest)
    header = HEADER.pack(key, _checksum(parts), *sizes)
    with whole_file(file.parent.resolve() / file.name) as target:
        target.writelines([header, *parts])


def _checksum(parts: Sequence[bytes]) -> int:
    return reduce(lambda checksum, part: zlib.crc32(part, checksum), parts, 0)
