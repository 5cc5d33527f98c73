"""Files in the safetensors format: a JSON header, then the tensors' bytes, nothing executable.

Source: https://huggingface.co/docs/safetensors/index#format. That library needs all tensors of a file at once and has
no digests, and the format is simple enough to write here.
"""

import json
import math
from collections.abc import Iterable, Mapping
from typing import IO, Any, NamedTuple

SUFFIX = ".safetensors"
ITEM_BYTES = {
    "BOOL": 1,
    "U8": 1,
    "I8": 1,
    "F8_E4M3": 1,
    "F8_E5M2": 1,
    "I16": 2,
    "U16": 2,
    "F16": 2,
    "BF16": 2,
    "I32": 4,
    "U32": 4,
    "F32": 4,
    "I64": 8,
    "U64": 8,
    "F64": 8,
    "C64": 8,
}
MOST_BYTES = 100_000_000  # of a header, as that library has it


class Kind(NamedTuple):
    """``dtype``: as the format calls it."""

    dtype: str
    shape: tuple[int, ...]

    @property
    def size(self) -> int:
        """In bytes."""
        return math.prod(self.shape) * ITEM_BYTES[self.dtype]


def header(kinds: Mapping[str, Kind], about: Mapping[str, str]) -> tuple[bytes, dict[str, int]]:
    """What such a file begins with, and the place in it where each tensor's bytes begin, in this order.

    ``about``: free text, which readers may show.
    """
    content: dict[str, Any] = {"__metadata__": dict(about)}
    end = 0
    for name, kind in kinds.items():
        content[name] = {"dtype": kind.dtype, "shape": kind.shape, "data_offsets": (end, end + kind.size)}
        end += kind.size
    text = json.dumps(content, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)  # so that tensors can be used where they lie in the file
    begin = 8 + len(text)
    begins = {name: begin + content[name]["data_offsets"][0] for name in kinds}
    return len(text).to_bytes(8, "little") + text, begins


def about(file: IO[bytes]) -> dict[str, str]:
    """The free text in the header of such a file. Raises ValueError for any other file."""
    length = int.from_bytes(file.read(8), "little")
    if not 2 <= length <= MOST_BYTES:
        raise ValueError("it is not a safetensors file")
    found = json.loads(file.read(length))
    text = found.get("__metadata__", {}) if isinstance(found, dict) else None
    if not isinstance(text, dict):
        raise ValueError("it is not a safetensors file")
    return {str(key): str(value) for key, value in text.items()}


def by_size(kinds: Iterable[tuple[str, Kind]]) -> dict[str, Kind]:
    """In the order in which that library writes them: the widest numbers first, so that all are aligned."""
    return dict(sorted(kinds, key=lambda each: (-ITEM_BYTES[each[1].dtype], each[0])))
