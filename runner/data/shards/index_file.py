"""An index in a file: a head in JSON, then arrays that are mapped into memory, 16 bytes for each checked piece.

It opens in a millisecond, however many samples there are, and its pages are shared by all processes.
"""

import hashlib
import json
import os
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from manyheads.runner.data.links import opened
from manyheads.runner.data.shards.index import About, Shard, ShardIndex
from manyheads.runner.run.files import whole_file
from manyheads.runner.run.objects import Address

if TYPE_CHECKING:
    import numpy as np

MAGIC = b"mh tar 1"  # followed by the length of the head, 8 bytes
ENTRY = [("offset", "<u8"), ("size", "<u4"), ("checksum", "<u4")]
ENTRY_BYTES = 16
MOST_HEAD = 2**28  # a shard takes some 100 bytes


def write(index: ShardIndex, path: Path) -> None:
    """Write an index, complete or not at all. Raises OSError."""
    head = _head(replace(index.about, digest=_digest(index)))
    with whole_file(path) as file:
        file.write(MAGIC + len(head).to_bytes(8, "little") + head)
        file.write(bytes(_aligned(len(head)) - len(MAGIC) - 8 - len(head)))
        file.write(index.entries.tobytes())
        if index.targets is not None:
            file.write(index.targets.astype("<i4").tobytes())


def read(root: Path, path: Path, *, within: str | None = None) -> ShardIndex | None:
    """The index in a file; None if it is no complete index. ``within``: the boundary that the file must be in.

    Raises ConfigurationError for a link that points outside it.
    """
    with opened(path, within) as handle, open(handle, "rb", closefd=False) as file:
        return _read(root, file)


def sound(root: Address, file: IO[bytes]) -> ShardIndex | None:
    """The index in an untrusted file; None unless its content has the recorded digest."""
    index = _read(root, file)
    return index if index is not None and index.about.digest == _digest(index) else None


def _digest(index: ShardIndex) -> str:
    digest = hashlib.sha256(_head(replace(index.about, digest="")))
    for array in (index.entries, index.targets):
        if array is not None:
            digest.update(array.astype(array.dtype.newbyteorder("<"), copy=False).tobytes())
    return digest.hexdigest()


def _head(about: About) -> bytes:
    return json.dumps(asdict(about)).encode()


def _read(root: Path | Address, file: IO[bytes]) -> ShardIndex | None:
    with suppress(OSError, ValueError, TypeError, KeyError, RecursionError):
        if file.read(len(MAGIC)) != MAGIC:
            return None
        length = int.from_bytes(file.read(8), "little")
        about = _about(json.loads(file.read(min(length, MOST_HEAD))))
        samples, width = sum(shard.samples for shard in about.shards), max(len(about.fields), 1)
        start = _aligned(length)
        end = start + samples * width * ENTRY_BYTES
        if os.fstat(file.fileno()).st_size != end + (0 if about.classes is None else 4 * samples):
            return None
        entries = _mapped(file, ENTRY, start, (samples, width))
        targets = None if about.classes is None else _mapped(file, "<i4", end, (samples,))
        return ShardIndex(root, about, entries, targets)
    return None


def _about(head: Any) -> About:
    """The content of the head, which is untrusted. Raises TypeError, ValueError, KeyError."""
    shards = tuple(Shard(str(name), int(size), int(samples)) for name, size, samples in head["shards"])
    if any(shard.samples < 0 for shard in shards):
        raise ValueError
    state = tuple(tuple(map(int, row)) for row in head["state"])
    classes = None if head["classes"] is None else int(head["classes"])
    fields, checked, unlabelled = tuple(map(str, head["fields"])), str(head["checked"]), str(head["unlabelled"])
    return About(shards, fields, checked, classes, unlabelled, state, str(head.get("digest", "")))


def _aligned(head: int) -> int:
    return -(-(len(MAGIC) + 8 + head) // 64) * 64


def _mapped(file: IO[bytes], dtype: Any, offset: int, shape: tuple[int, ...]) -> "np.ndarray":
    import numpy as np

    return np.memmap(file, dtype, "r", offset, shape) if shape[0] else np.zeros(shape, dtype)
