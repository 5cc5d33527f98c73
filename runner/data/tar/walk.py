"""The members of a tar archive, found by walking from header to header, in webdataset's convention.

A member's name up to the first dot of its last part is the key of a sample, the rest is the field; members that follow
each other with the same key are one sample. Sources: POSIX.1-2017 (pax), webdataset's tariterators
(https://github.com/webdataset/webdataset).
"""

import os
import re
from collections.abc import Iterator
from typing import NamedTuple

BLOCK = 512
REGULAR = (b"0", b"\0", b"7")
SKIPPED = {b"5": "folder", b"g": "settings for all members"}
LINKS = {b"1": "link", b"2": "link"}
LONG_NAME, LONG_LINK, PAX = b"L", b"K", b"x"
MOST_EXTENSION = 2**20  # bytes of a long name, or of pax's records
MOST_END = 2**20  # bytes after the end, which tar fills with zeros up to its record size
META = re.compile(r"__[^/]*__($|/)")  # webdataset's own


class Member(NamedTuple):
    """A file in an archive. ``offset``: of its content, whose header is the block before; ``size``: in bytes."""

    key: str
    field: str
    offset: int
    size: int
    header: bytes


class Unsound(ValueError):
    """What is wrong with an archive, as the rest of a sentence that begins with its name."""


def members(handle: int, size: int, *, skipped: list[str] | None = None) -> Iterator[Member]:
    """The members of an open archive of ``size`` bytes that belong to samples. Raises Unsound, OSError.

    ``skipped``: receives the names of those without a field, except hidden ones.
    """
    for name, member in _files(handle, size):
        if META.match(name):
            continue
        if name.startswith("/") or ".." in name.split("/"):
            raise Unsound(f"its member {name!r} points outside the archive. Pack it again with relative names")
        folder, slash, last = name.rpartition("/")
        base, _, field = last.partition(".")
        if base and field:
            yield member._replace(key=f"{folder}{slash}{base}", field=field.lower())
        elif base and skipped is not None:
            skipped.append(name)


def _files(handle: int, size: int) -> Iterator[tuple[str, Member]]:
    position, name, length = 0, None, None
    while position + BLOCK <= size:
        header = os.pread(handle, BLOCK, position)
        if not any(header):
            _check_end(handle, position, size)
            return
        kind, own_size = _parsed(header, position)
        offset = position + BLOCK
        if kind in (LONG_NAME, LONG_LINK, PAX):
            text = _extension(handle, offset, own_size, size)
            if kind == PAX:
                name, length = _records(text, name, length)
            elif kind == LONG_NAME:
                name = _text(text)
            content = own_size
        else:
            path = _name(header) if name is None else name
            content = own_size if length is None else length
            if offset + content > size:
                raise Unsound(f"it is cut off within {path!r}, at {size:,} of at least {offset + content:,} bytes")
            if kind in LINKS:
                raise Unsound(f"{path!r} is a link. Pack the files themselves: tar --dereference --hard-dereference")
            if kind in REGULAR and not path.endswith("/"):
                yield path, Member("", "", offset, content, header)
            elif kind not in SKIPPED and kind not in REGULAR:
                raise Unsound(f"{path!r} has the type {kind.decode('latin1')!r}. Allowed: files and folders")
            name = length = None
        position = offset + -(-content // BLOCK) * BLOCK
    raise Unsound("it is cut off: the two blocks of zeros at the end of an archive are missing")


def is_header(block: bytes, size: int) -> bool:
    """Whether a block is the header of a file of ``size`` bytes; if a pax record gives its size, of any file."""
    try:
        kind, own_size = _parsed(block, 0)
    except Unsound:
        return False
    return kind in REGULAR and own_size in (size, 0)


def _parsed(header: bytes, position: int) -> tuple[bytes, int]:
    """A header's type and size. Raises Unsound for a block that is no header."""
    checksum = sum(header) - sum(header[148:156]) + 8 * ord(" ")
    try:
        if checksum == _number(header[148:156]):
            return header[156:157], _number(header[124:136])
    except ValueError:
        pass
    what = "it is not a tar archive" if position == 0 else f"its header at byte {position:,} is damaged"
    raise Unsound(f"{what}. Archives must not be compressed: only then can samples be read in any order")


def _number(digits: bytes) -> int:
    """A number in octal digits; or, for large ones, in binary after a first byte of 0x80."""
    if digits[0] == 0x80:
        return int.from_bytes(digits[1:], "big")
    octal = digits.partition(b"\0")[0].strip(b" ") or b"0"
    if not octal.isdigit():  # int would take a sign
        raise ValueError
    return int(octal, 8)


def _name(header: bytes) -> str:
    name = _text(header[:100])
    prefix = _text(header[345:500]) if header[257:263] == b"ustar\0" else ""
    return f"{prefix}/{name}" if prefix else name


def _text(content: bytes) -> str:
    return content.partition(b"\0")[0].decode("utf-8", "surrogateescape")


def _extension(handle: int, offset: int, length: int, size: int) -> bytes:
    if length > MOST_EXTENSION or offset + length > size:
        raise Unsound(f"its header at byte {offset - BLOCK:,} claims {length:,} bytes for a name")
    return os.pread(handle, length, offset)


def _records(text: bytes, name: str | None, length: int | None) -> tuple[str | None, int | None]:
    """Name and size among pax's records, each a length, a key and a value."""
    while text:
        digits, _, _ = text.partition(b" ")
        if not digits.isdigit() or not len(digits) < int(digits) <= len(text):
            raise Unsound("it has damaged pax records")
        key, _, value = text[len(digits) + 1 : int(digits) - 1].partition(b"=")
        if key == b"path":
            name = _text(value)
        elif key == b"size" and value.isdigit():
            length = int(value)
        elif key.startswith(b"GNU.sparse"):
            raise Unsound("it holds a sparse file. Pack it again without --sparse")
        text = text[int(digits) :]
    return name, length


def _check_end(handle: int, position: int, size: int) -> None:
    """Raises Unsound if the archive continues after its end, as after ``cat``, or is cut off within it."""
    rest = os.pread(handle, MOST_END, position)
    if size - position < 2 * BLOCK:
        raise Unsound("it is cut off: the two blocks of zeros at the end of an archive are missing")
    if any(rest) or size - position > MOST_END:
        raise Unsound(f"it continues after its end at byte {position:,}, like archives that were joined by cat")
