"""Files in the safetensors format: a JSON header, then the tensors' bytes, nothing executable.

Source: https://huggingface.co/docs/safetensors/index#format. The safetensors library needs all tensors of a file at
once and computes no digests, and the format is simple enough to write here.
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
MOST_BYTES = 100_000_000  # of a header, as in the safetensors library


class TensorKind(NamedTuple):
    """A tensor's type and shape. ``dtype``: its name in the format, such as ``F32``."""

    dtype: str
    shape: tuple[int, ...]

    @property
    def size(self) -> int:
        """Size in bytes."""
        return math.prod(self.shape) * ITEM_BYTES[self.dtype]


def header(kinds: Mapping[str, TensorKind], about: Mapping[str, str]) -> tuple[bytes, dict[str, int]]:
    """The header of a file with these tensors in this order, and the offset in the file at which each tensor begins.

    ``about``: free text, which readers may show.
    """
    content: dict[str, Any] = {"__metadata__": dict(about)}
    end = 0
    for name, kind in kinds.items():
        content[name] = {"dtype": kind.dtype, "shape": kind.shape, "data_offsets": (end, end + kind.size)}
        end += kind.size
    text = json.dumps(content, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)  # aligned, so that tensors can be memory-mapped
    begin = 8 + len(text)
    begins = {name: begin + content[name]["data_offsets"][0] for name in kinds}
    return len(text).to_bytes(8, "little") + text, begins


def about(file: IO[bytes]) -> dict[str, str]:
    """The free text in a file's header. Raises ValueError if it is not a safetensors file."""
    length = int.from_bytes(file.read(8), "little")
    if not 2 <= length <= MOST_BYTES:
        raise ValueError("it is not a safetensors file")
    content = json.loads(file.read(length))
    text = content.get("__metadata__", {}) if isinstance(content, dict) else None
    if not isinstance(text, dict):
        raise ValueError("it is not a safetensors file")
    return {str(key): str(value) for key, value in text.items()}


def by_size(kinds: Iterable[tuple[str, TensorKind]]) -> dict[str, TensorKind]:
    """The tensors in the order of the safetensors library: the widest types first, so that all are aligned."""
    return dict(sorted(kinds, key=lambda pair: (-ITEM_BYTES[pair[1].dtype], pair[0])))
