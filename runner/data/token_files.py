"""Files of tokens as others write them: nanoGPT's and llm.c's ``.bin``, Megatron's ``.bin`` with its ``.idx``.

Several are read as one row.

Sources: https://github.com/karpathy/nanoGPT (uint16, no header), https://github.com/karpathy/llm.c (a header of 256
int32), https://github.com/NVIDIA/Megatron-LM, core/datasets/indexed_dataset.py.
"""

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

from manyheads.runner.data.shards.files import File
from manyheads.runner.errors import ConfigurationError
from manyheads.runner.run.files import whole_file

if TYPE_CHECKING:  # the parent, which only checks, starts without it
    import numpy as np

HEADER = 256 * 4  # bytes
MAGICS = {(20240520, 1): "<u2", (20240801, 7): "<u4"}  # of llm.c for GPT-2, and for Llama 3
MEGATRON = struct.Struct("<9sQBQQ")  # magic, version, type, sequences, documents
MAGIC = b"MMIDIDX\x00\x00"
TYPES = {1: "<u1", 2: "<i1", 3: "<i2", 4: "<i4", 5: "<i8", 8: "<u2"}


@dataclass(frozen=True)
class TokenFile:
    """A file of tokens. ``start``: byte at which they begin; ``ends``: where each document ends, None if unknown."""

    file: File
    dtype: str
    start: int
    count: int
    ends: "np.ndarray | None"

    def tokens(self) -> Any:
        """The tokens (count,), read when they are sliced."""
        return self.file.array(self.dtype, self.start, self.count)

    def highest(self, start: int, block: bytes) -> int:
        """The highest token in bytes of the file that begin at ``start``; -1 if there is none.

        Raises ConfigurationError for a negative one.
        """
        import numpy as np

        tokens = np.frombuffer(block[max(self.start - start, 0) :], self.dtype)
        if len(tokens) and tokens.min() < 0:
            raise ConfigurationError(f"{self.file.name} has the token {tokens.min()}. Write it again.")
        return int(tokens.max()) if len(tokens) else -1


def index_of(name: str) -> str:
    """The name of Megatron's index beside a file of tokens."""
    return str(PurePosixPath(name).with_suffix(".idx"))


def inspect(file: File, index: File | None) -> TokenFile:
    """Describe a file of tokens by its index or its header.

    Raises ConfigurationError for a file that is cut off, or does not belong to its index, and OSError.
    """
    if index is not None:
        return _by_index(file, index)
    header = file.read(0, 12)
    if len(header) == 12:
        magic, version, count = struct.unpack("<3i", header)
        if (dtype := MAGICS.get((magic, version))) is not None:
            _refuse(file, HEADER + count * int(dtype[-1]), "its header says")
            return TokenFile(file, dtype, HEADER, count, None)
    if file.size % 2:
        raise ConfigurationError(f"{file.name} has an odd number of bytes, {file.size:,}, but tokens of 2 bytes each.")
    return TokenFile(file, "<u2", 0, file.size // 2, None)


def _by_index(file: File, index: File) -> TokenFile:
    import numpy as np

    name, content = index.name, index.read(0, index.size)
    if len(content) < MEGATRON.size or content[:9] != MAGIC:
        raise ConfigurationError(f"{name} is not an index of Megatron. Remove it, or write both files again.")
    _, version, kind, sequences, documents = MEGATRON.unpack_from(content)
    if version != 1 or kind not in TYPES:
        raise ConfigurationError(
            f"{name}: version {version} and type {kind} are not known. Allowed: version 1, types {[*TYPES]}."
        )
    if len(content) < MEGATRON.size + 12 * sequences + 8 * documents:
        raise ConfigurationError(f"{name} is cut off: it has {len(content):,} bytes for {sequences:,} sequences.")
    dtype = TYPES[kind]
    lengths = np.frombuffer(content, "<i4", sequences, MEGATRON.size).astype(np.int64)
    starts = np.frombuffer(content, "<i8", sequences, MEGATRON.size + 4 * sequences)
    limits = np.frombuffer(content, "<i8", documents, MEGATRON.size + 12 * sequences)
    ends, width = np.cumsum(lengths), int(dtype[-1])
    _refuse(file, int(ends[-1]) * width if sequences else 0, f"{name} says")
    if (lengths < 0).any() or not np.array_equal(starts, (ends - lengths) * width):
        raise ConfigurationError(f"{name} belongs to another file than {file.name}: its positions do not fit.")
    if documents and (limits.min() < 0 or limits.max() > sequences):
        raise ConfigurationError(
            f"{name} is damaged: it counts {sequences:,} sequences, and names number {limits.max()}."
        )
    last = np.concatenate([[0], ends])[limits[limits > 0]]  # a document is some sequences, mostly one
    return TokenFile(file, dtype, 0, int(ends[-1]) if sequences else 0, last)


def _refuse(file: File, expected: int, source: str) -> None:
    if file.size != expected:
        raise ConfigurationError(
            f"{file.name} has {file.size:,} bytes, but {source} {expected:,}: it is cut off, or they do not belong "
            "together. Write it again."
        )


def write(folder: Path, name: str, tokens: "np.ndarray", ends: Sequence[int]) -> None:
    """Write ``<name>.bin`` and ``.idx`` as Megatron does. ``ends``: where each document ends. Raises OSError."""
    import numpy as np

    kind = next(code for code, dtype in {8: np.uint16, 4: np.int32}.items() if np.can_cast(tokens.dtype, dtype))
    limits = np.asarray(ends, np.int64)
    lengths = np.diff(limits, prepend=0)
    with whole_file(folder / f"{name}.bin") as file:
        file.write(np.ascontiguousarray(tokens.astype(TYPES[kind])).data)
    with whole_file(folder / f"{name}.idx") as file:
        file.write(MEGATRON.pack(MAGIC, 1, kind, len(limits), len(limits) + 1))
        file.write(lengths.astype("<i4").tobytes())
        file.write(((limits - lengths) * int(TYPES[kind][-1])).astype("<i8").tobytes())
        file.write(np.arange(len(limits) + 1, dtype="<i8").tobytes())


class Joined:
    """Concatenated arrays, read by slices; they are never copied as a whole."""

    def __init__(self, parts: Sequence[Any]):
        self.parts = parts
        self.starts = [0, *accumulate(map(len, parts))]

    def __len__(self) -> int:
        return self.starts[-1]

    def __getitem__(self, wanted: slice) -> Any:
        import numpy as np

        pieces = [part[span] for part, span in self._pieces(wanted)]
        return pieces[0] if len(pieces) == 1 else np.concatenate([*pieces, self.parts[0][:0]])

    def fetch_ahead(self, wanted: slice) -> None:
        """Request tokens without waiting; only in object storage."""
        for part, span in self._pieces(wanted):
            part.fetch_ahead(span)

    def _pieces(self, wanted: slice) -> Iterator[tuple[Any, slice]]:
        first, last, _ = wanted.indices(len(self))
        for part, start in zip(self.parts, self.starts, strict=False):
            if start < last and start + len(part) > first:
                yield part, slice(max(first - start, 0), max(last - start, 0))
