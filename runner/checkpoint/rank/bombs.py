"""Refuses checkpoint files of few bytes that would take much memory or time, before torch reads them.

Only what torch itself writes is let through, so that what is examined here is what torch will read.
"""

import os
import pickletools
import struct
import zipfile
from collections.abc import Iterator
from typing import IO

from manyheads.runner.run.checkpoint_places import Damaged

PICKLES = 5  # of torch's format before 1.6: a number, the version, the machine, the content, the names of the storages
REPEATED = 4  # most values of a content for each byte of its file
_END = struct.Struct("<4s4H2LH")  # of an archive: ..., bytes and offset of its directory, and of a comment
_END_64 = struct.Struct("<4sQ2H2L4Q")  # the same for large ones
_LOCATOR = struct.Struct("<4sLQL")  # follows that one: ..., its offset


def refuse_bombs(file: IO[bytes]) -> None:
    """Raises Damaged, or BadZipFile or ValueError for what is neither an archive nor pickles. ``file``: at its start.

    Torch lets a pickle call bytearray(n) and _codecs.encode, by which a few bytes can allocate any amount of memory.
    Neither torch nor this project writes such calls.
    """
    for pickled in _pickles(file):
        for operation, argument, _ in pickletools.genops(pickled):
            if operation.name == "GLOBAL" and str(argument).endswith((" bytearray", " encode")):
                raise Damaged(f"it calls {str(argument).replace(' ', '.')}")
    file.seek(0)


def refuse_repetition(state: object, size: int) -> None:
    """Raises Damaged for a content that holds the same lists again and again, so that a walk over it would not end.

    Each value takes a byte or more of the file, which has ``size`` bytes; some tuples are stored once and used often.
    """
    left, most = [state], REPEATED * size
    while left:
        value = left.pop()
        values = value.values() if isinstance(value, dict) else value if isinstance(value, (list, tuple)) else ()
        most -= len(values)
        if most < 0:
            raise Damaged("it holds the same lists again and again")
        left += values


def _pickles(file: IO[bytes]) -> Iterator[IO[bytes]]:
    if file.read(2) == b"PK":  # by which torch decides, too
        with zipfile.ZipFile(file) as archive:
            _refuse_other_archives(file, archive)
            for name in archive.namelist():
                if name.lower().endswith(".pkl"):
                    with archive.open(name) as part:
                        yield part
    else:
        file.seek(0)
        yield from [file] * PICKLES


def _refuse_other_archives(file: IO[bytes], archive: zipfile.ZipFile) -> None:
    """Raises Damaged for archives that torch does not write.

    It does not compress. And of two entries of one name, or two directories of entries, it might read the other one.
    """
    size = os.fstat(file.fileno()).st_size
    if sum(entry.file_size for entry in archive.infolist()) > size:
        raise Damaged("it would unpack to more than its own size")
    names = [name.lower() for name in archive.namelist()]  # torch's reader ignores case
    if len({*names}) < len(names) or not _has_one_directory(file, size):
        raise Damaged("it holds two entries of one name")


def _has_one_directory(file: IO[bytes], size: int) -> bool:
    """Whether the archive's only directory ends where its end record begins, which ends the file."""
    end = size - _END.size
    file.seek(max(end, 0))
    signature, *_, length, offset, _ = _END.unpack(file.read(_END.size))
    if signature != b"PK\5\6":
        return False
    file.seek(max(end - _LOCATOR.size, 0))
    signature, _, located, _ = _LOCATOR.unpack(file.read(_LOCATOR.size))
    if signature == b"PK\6\7":  # which torch writes in small archives, too
        end -= _LOCATOR.size + _END_64.size
        file.seek(max(end, 0))
        signature, *_, length, offset = _END_64.unpack(file.read(_END_64.size))
        if signature != b"PK\6\6" or located != end:
            return False
    return offset + length == end
