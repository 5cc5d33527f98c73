"""The shards below a root, wherever it is: a folder on the local disk, or a place in object storage."""

import hashlib
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from manyheads.runner.data.links import boundary
from manyheads.runner.data.shards.blocks import check_places
from manyheads.runner.data.shards.files import LocalFile, ObjectFile, ShardParts
from manyheads.runner.data.shards.index import ShardIndex, ShardKind
from manyheads.runner.data.shards.stored import StoredShards
from manyheads.runner.errors import ConfigurationError


class LocalFolder:
    """Shards in a folder. Raises ConfigurationError if there are none.

    ``names``: of those below the root, in order, without the files that only describe them.
    """

    def __init__(self, root: Path, kind: ShardKind):
        self.root = root
        self.within = boundary(root)
        suffix = kind.suffixes[0]
        self.names = sorted(path.relative_to(root).as_posix() for path in root.rglob(f"*{suffix}"))
        if not self.names:
            raise ConfigurationError.at(
                "data.root", root, f": no file below it ends in {suffix}. Set it to the folder of the shards."
            )

    def has(self, name: str) -> bool:
        """Whether there is a file of this name."""
        return (self.root / name).exists()

    def file(self, name: str) -> LocalFile:
        """The file of this name. Raises ConfigurationError, OSError."""
        return LocalFile(self.root / name, self.within)

    def states(self, names: Sequence[str]) -> list[Any]:
        """What changes with the content of these shards, for a cache of what is computed from them."""
        statuses = [(str(path.absolute()), path.stat()) for path in (self.root / name for name in names)]
        return [(path, status.st_size, status.st_mtime_ns, status.st_ctime_ns) for path, status in statuses]


class StoredFolder:
    """Shards in object storage, with an index of their blocks. Raises ConfigurationError."""

    def __init__(self, shards: StoredShards, kind: ShardKind):
        self.root, self.shards = shards.address, shards
        self.index: ShardIndex = shards.index(kind)
        check_places(self.index)
        self._numbers = {shard.name: number for number, shard in enumerate(self.index.about.shards)}
        self.names = [name for name in self._numbers if name.endswith(kind.suffixes[0])]

    @cached_property
    def _parts(self) -> ShardParts:
        offsets, sizes = (self.index.entries[part][:, 0] for part in ("offset", "size"))
        return ShardParts(
            self.shards, self.index, lambda row: int(offsets[row]), lambda row: int(offsets[row] + sizes[row])
        )

    def has(self, name: str) -> bool:
        """Whether the index has a file of this name."""
        return name in self._numbers

    def file(self, name: str) -> ObjectFile:
        """The file of this name."""
        return ObjectFile(self.index, self._numbers[name], self._parts)

    def states(self, names: Sequence[str]) -> list[Any]:
        """The names of these shards, each with a digest of its blocks' checksums."""
        checksums = self.index.entries["checksum"]
        return [(name, hashlib.sha256(checksums[self._span(name), 0].tobytes()).hexdigest()) for name in names]

    def highest(self, name: str) -> tuple[int, int]:
        """The highest token of a shard, -1 if it has none, and the first block that has it."""
        targets = self.index.targets
        if targets is None or not len(labels := targets[self._span(name)]):
            return -1, 0
        return int(labels.max()), int(labels.argmax())

    def _span(self, name: str) -> slice:
        number = self._numbers[name]
        return slice(self._parts.firsts[number], self._parts.firsts[number + 1])


Folder = LocalFolder | StoredFolder
