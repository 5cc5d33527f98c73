"""An index of shards: where each piece of them is, with a checksum.

Pieces of tar shards are the fields of samples, so that any sample can be read directly (tar/index.py); those of other
files are blocks (blocks.py). ``manyheads index`` and ``manyheads pack`` write it beside the shards: a head in JSON,
then arrays that are mapped into memory, 16 bytes for each checked piece. It opens in a millisecond, however many
samples there are, and its pages are shared by all processes.
"""

import hashlib
import json
import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, NamedTuple

from manyheads.runner.data.links import opened
from manyheads.runner.errors import ConfigurationError, printable
from manyheads.runner.machine import invocation
from manyheads.runner.run.files import whole_file
from manyheads.runner.run.objects import Address

if TYPE_CHECKING:  # the parent of other runs starts without it
    import numpy as np

NAME = ".manyheads-index"
NONE, HEADERS, CONTENTS, BLOCKS = "none", "headers", "headers and contents", "blocks"  # what checksums cover
MAGIC = b"mh tar 1"  # followed by the length of the head, 8 bytes
ENTRY = [("offset", "<u8"), ("size", "<u4"), ("checksum", "<u4")]
ENTRY_BYTES = 16
MOST_HEAD = 2**28  # a shard takes some 100 bytes
Advance = Callable[[], None]  # called when another shard has been read


class ShardKind(NamedTuple):
    """A kind of shards. ``name``: of the option that reads them; ``checked``: what checksums must cover."""

    name: str
    suffixes: tuple[str, ...]
    checked: str = BLOCKS


TAR = ShardKind("tar", (".tar",), CONTENTS)
PARQUET = ShardKind("parquet", (".parquet",))
TOKENS = ShardKind("tokens", (".bin", ".idx"))
KINDS = (TAR, PARQUET, TOKENS)  # if there are several below a root, the first is indexed


class ShardFile(NamedTuple):
    """A shard below the root. ``state``: its inode, and the times of its last changes."""

    name: str
    size: int
    state: tuple[int, ...]


class Shard(NamedTuple):
    """A shard in an index: its name below the root, its size in bytes, and the number of its samples, or blocks."""

    name: str
    size: int
    samples: int


@dataclass(frozen=True)
class About:
    """What an index says about its shards.

    ``fields``: of samples, or for blocks the name of their kind; ``checked``: what its checksums cover; ``classes``:
    one more than the highest class number, None if not every sample has one, or than the highest token;
    ``unlabelled``: the first sample that has none; ``state``: of each shard, for an index in the cache; ``digest``: the
    sha256 of the index's content, once it has been written.
    """

    shards: tuple[Shard, ...]
    fields: tuple[str, ...]
    checked: str
    classes: int | None
    unlabelled: str = ""
    state: tuple[tuple[int, ...], ...] = ()
    digest: str = ""


@dataclass(frozen=True)
class ShardIndex:
    """The index of all shards below ``root``.

    ``entries``: ENTRY (samples, fields), offset 0 for a missing field, or (blocks, 1); ``targets``: class numbers
    (samples,), or the highest token of each block.
    """

    root: Path | Address
    about: About
    entries: "np.ndarray"
    targets: "np.ndarray | None"

    def changed(self, number: int, what: str) -> ConfigurationError:
        """The error for a shard that differs from what was indexed."""
        return outdated(self.root, f"the shard {printable(self.about.shards[number].name)} {what}")


def check_shards(index: ShardIndex, files: list[ShardFile]) -> None:
    """Raises ConfigurationError unless the index beside the shards matches those that were found."""
    here = {file.name: file.size for file in files}
    for number, shard in enumerate(index.about.shards):
        if shard.name not in here:
            raise index.changed(number, "is missing, but was there when the shards were indexed")
        if here[shard.name] != shard.size:
            raise index.changed(number, f"has {here[shard.name]:,} bytes, and had {shard.size:,} when it was indexed")
    if added := sorted(here.keys() - {indexed.name for indexed in index.about.shards}):
        raise outdated(index.root, f"the shard {printable(added[0])} was added after the others were indexed")


def outdated(root: Path | Address, what: str) -> ConfigurationError:
    """The error for an index that does not fit the shards. ``what``: says why."""
    again = f"If that is right, index again: {invocation.command('index', root)}"
    return ConfigurationError.at("data.root", root, f": {what}. {again}")


def crc(content: bytes) -> int:
    """CRC-32C, which processors compute at several gigabytes per second."""
    import google_crc32c  # which few runs need

    return int(google_crc32c.value(content))


def save_index(index: ShardIndex, path: Path) -> None:
    """Write an index, complete or not at all. Raises OSError."""
    head = _head(replace(index.about, digest=_digest(index)))
    with whole_file(path) as file:
        file.write(MAGIC + len(head).to_bytes(8, "little") + head)
        file.write(bytes(_aligned(len(head)) - len(MAGIC) - 8 - len(head)))
        file.write(index.entries.tobytes())
        if index.targets is not None:
            file.write(index.targets.astype("<i4").tobytes())


def read_index(root: Path, path: Path, *, within: str | None = None) -> ShardIndex | None:
    """The index in a file; None if it is no complete index. ``within``: the boundary that the file must be in.

    Raises ConfigurationError for a link that points outside it.
    """
    with opened(path, within) as handle, open(handle, "rb", closefd=False) as file:
        return _read(root, file)


def sound_index(root: Address, file: IO[bytes]) -> ShardIndex | None:
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
    return About(
        shards,
        fields=tuple(map(str, head["fields"])),
        checked=str(head["checked"]),
        classes=None if head["classes"] is None else int(head["classes"]),
        unlabelled=str(head["unlabelled"]),
        state=tuple(tuple(map(int, row)) for row in head["state"]),
        digest=str(head.get("digest", "")),
    )


def _aligned(head: int) -> int:
    return -(-(len(MAGIC) + 8 + head) // 64) * 64


def _mapped(file: IO[bytes], dtype: Any, offset: int, shape: tuple[int, ...]) -> "np.ndarray":
    import numpy as np

    return np.memmap(file, dtype, "r", offset, shape) if shape[0] else np.zeros(shape, dtype)
