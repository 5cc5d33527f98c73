"""Pictures of a run, in ``pictures/``: PNGs that say in a chunk of text after how many updates they were drawn.

Source of the format: https://www.w3.org/TR/png-3/#11tEXt.
"""

import struct
import zlib

SIGNATURE = b"\x89PNG\r\n\x1a\n"
MOST_BYTES = 16 * 2**20  # of a picture that is read
_HEAD = 33  # bytes of the signature and of IHDR, which is the first chunk
_TEXT = b"tEXtupdates\0"


def with_step(png: bytes, step: int) -> bytes:
    """The PNG with the number of updates; unchanged if it is not a PNG."""
    if not png.startswith(SIGNATURE):
        return png
    content = _TEXT + str(step).encode()
    chunk = struct.pack(">I", len(content) - 4) + content + struct.pack(">I", zlib.crc32(content))
    return png[:_HEAD] + chunk + png[_HEAD:]


def step_of(png: bytes) -> int | None:
    """After how many updates a picture was drawn; None if it does not say so, or is not a PNG."""
    begin = _HEAD + 4
    if not (png.startswith(SIGNATURE) and png[begin:].startswith(_TEXT)):
        return None
    (length,) = struct.unpack(">I", png[_HEAD:begin])
    digits = png[begin + len(_TEXT) : begin + 4 + length]
    return int(digits) if digits.isdigit() and len(digits) < 16 else None
