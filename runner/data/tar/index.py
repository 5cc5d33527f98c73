"""The index of tar shards in a folder: where each field of each sample is, so that any sample can be read directly.

``manyheads index`` and ``manyheads pack`` write it beside the shards; else it is in the user's cache, and rebuilt if a
shard has changed. It is built from an index of Megatron-Energon if there is one (energon.py).
"""

import hashlib
import os
from array import array
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from manyheads.runner.data.left_out import LeftOut
from manyheads.runner.data.links import boundary, nearest_path, opened
from manyheads.runner.data.shards.index import (
    BLOCKS,
    CONTENTS,
    ENTRY,
    HEADERS,
    NAME,
    NONE,
    About,
    Advance,
    Shard,
    ShardFile,
    ShardIndex,
    check_shards,
    crc,
    outdated,
    read_index,
    save_index,
)
from manyheads.runner.data.tar.walk import Member, Unsound, members
from manyheads.runner.errors import ConfigurationError, printable
from manyheads.runner.machine.user_folders import cache_folder
from manyheads.runner.run.files import in_turn
from manyheads.runner.run.objects import Address

SUFFIX = ".tar"
CLASS = "cls"
Walk = Callable[[int, int], Iterator[Member]]  # of the descriptor and the size of a shard; may raise Unsound
MOST_FIELDS = 32
MOST_SIZE = 2**32 - 1  # bytes of a field


def open_index(root: Path, advance: Advance = lambda: None) -> ShardIndex:
    """The index of all shards below ``root``.

    Raises ConfigurationError for shards that are damaged, or do not belong to the index beside them.
    """
    from manyheads.runner.data.tar import energon

    files = list_shards(root)
    if (root / NAME).is_file():
        beside = read_index(root, root / NAME, within=boundary(root))
        if beside is None or beside.about.checked == BLOCKS:
            raise outdated(root, f"{NAME} is damaged, or was written by another version, or for other files")
        check_shards(beside, files)
        return beside
    make = energon.build if energon.has_index(root) else build
    if (cache := cache_folder("tar")) is None:
        return make(root, files, advance)
    name = hashlib.sha256(os.fsencode(root.absolute())).hexdigest()[:32]
    try:
        file = cache / name
        with in_turn(file.with_suffix(".lock")):
            stored = read_index(root, file) if file.exists() else None
            if stored is not None and _states(stored) == files:
                return stored
            index = make(root, files, advance)
            stated = replace(index.about, state=tuple(shard.state for shard in files))
            save_index(replace(index, about=stated), file)
            return read_index(root, file) or index
    except OSError:  # a cache that is full or can't be written: each process builds its own index
        return make(root, files, advance)


def list_shards(root: Path) -> list[ShardFile]:
    """The tar files below ``root``, by name. Raises ConfigurationError if there are none."""
    shards = []
    for folder, _, files in os.walk(root):
        for path in (os.path.join(folder, name) for name in files if name.endswith(SUFFIX)):
            size, *state = state_of(path)
            shards.append(ShardFile(os.path.relpath(path, root), size, tuple(state)))
    if not shards:
        reason = "no file below it ends in .tar." if root.is_dir() else f"there is no such folder.{nearest_path(root)}"
        raise ConfigurationError.at(
            "data.root", root, f": {reason} Set it to the folder of the shards, which must not be compressed."
        )
    return sorted(shards)


def state_of(path: str | Path) -> tuple[int, ...]:
    """Size, inode and times of a file: all that is known of it without reading it. Raises OSError."""
    status = os.stat(path)
    return status.st_size, status.st_ino, status.st_mtime_ns, status.st_ctime_ns


def _states(index: ShardIndex) -> list[ShardFile]:
    shards, states = index.about.shards, index.about.state
    return [ShardFile(shard.name, shard.size, state) for shard, state in zip(shards, states, strict=False)]


def build(
    root: Path, files: Sequence[ShardFile], advance: Advance = lambda: None, *, contents: bool = False
) -> ShardIndex:
    """An index of these shards. ``contents``: read all of them, for checksums of every byte.

    Raises ConfigurationError for what is wrong with a shard.
    """
    table, skipped = TarTable(checked=CONTENTS if contents else HEADERS), list[str]()
    for shard in files:
        table.add_shard(root, shard, partial(members, skipped=skipped))
        advance()
    why = f" of the shards below {printable(root)}: a name without a dot belongs to no sample."
    LeftOut.of(skipped).warn("member", why)
    return table.index(root)


class TarTable:
    """An index that grows sample by sample. ``checked``: what its checksums cover."""

    def __init__(self, *, checked: str):
        self.checked, self.fields, self.shards = checked, dict[str, int](), list[Shard]()
        self.targets, self.unlabelled = array("i"), ""
        self._flat = [array("Q"), array("B"), array("Q"), array("I"), array("I")]  # sample, field, and its entry

    def add_shard(self, root: Path, shard: ShardFile, walk: Walk) -> None:
        """Add the samples of a shard. Raises ConfigurationError."""
        with opened(root / shard.name, boundary(root)) as handle:
            self.add_members(root, shard, walk, handle)

    def add_members(self, root: object, shard: ShardFile, walk: Walk, handle: int) -> None:
        """Add the samples of a shard that is open. Raises ConfigurationError."""
        first, keys, key, sample = len(self.targets), set[str](), None, list[Member]()
        try:
            for member in walk(handle, shard.size):
                if member.key != key:
                    self._add(sample, handle, shard.name)
                    sample, key = [], member.key
                    if key in keys:
                        raise Unsound(
                            f"the key {key!r} occurs twice, with other samples in between. Pack all files of a "
                            "sample one after the other, as tar --sort=name does"
                        )
                    keys.add(key)
                sample.append(member)
            self._add(sample, handle, shard.name)
        except Unsound as error:
            raise ConfigurationError.at("data.root", root, f": the shard {printable(shard.name)}: {error}.") from None
        self.shards.append(Shard(shard.name, shard.size, len(self.targets) - first))

    def _add(self, files: list[Member], handle: int, shard: str) -> None:
        """Add a sample with these files."""
        if not files:
            return
        sample, target, taken = len(self.targets), None, set[int]()
        for member in files:
            column = self._column(member)
            if column in taken:
                raise Unsound(f"the key {member.key!r} has two files {member.field!r}")
            taken.add(column)
            is_read = self.checked == CONTENTS or member.field == CLASS
            content = os.pread(handle, member.size, member.offset) if is_read else b""
            target = _class_number(content) if member.field == CLASS else target
            entry = (sample, column, member.offset, member.size, self._checksum(member, content))
            for values, value in zip(self._flat, entry, strict=True):
                values.append(value)
        if target is None and not self.unlabelled:
            self.unlabelled = f"{shard}: {files[0].key}"
        self.targets.append(-1 if target is None else target)

    def _checksum(self, member: Member, content: bytes) -> int:
        if self.checked == NONE:
            return 0
        return crc(member.header + content if self.checked == CONTENTS else member.header)

    def _column(self, member: Member) -> int:
        name = f"{member.key}.{member.field}"
        if member.size > MOST_SIZE:
            raise Unsound(f"{name} has {member.size:,} bytes. Allowed: {MOST_SIZE:,}")
        if member.field not in self.fields and len(self.fields) == MOST_FIELDS:
            raise Unsound(
                f"{name} would be field number {MOST_FIELDS + 1}. What stands before the first dot of a name is the "
                "key of the sample, the rest is the field: rename the files"
            )
        return self.fields.setdefault(member.field, len(self.fields))

    def index(self, root: Path | Address) -> ShardIndex:
        """The index of all added shards."""
        import numpy as np

        sample, column, *parts = (np.asarray(values) for values in self._flat)
        entries = np.zeros((len(self.targets), max(len(self.fields), 1)), ENTRY)
        for (name, _), part in zip(ENTRY, parts, strict=True):
            entries[name][sample, column] = part
        classes = None if self.unlabelled or not self.targets else max(self.targets) + 1
        about = About(tuple(self.shards), tuple(self.fields), self.checked, classes, self.unlabelled)
        return ShardIndex(root, about, entries, None if classes is None else np.asarray(self.targets, np.int32))


def _class_number(content: bytes) -> int | None:
    text = content[:32].decode("latin1").strip()
    return int(text) if text.isdigit() and text.isascii() and len(text) < 10 else None
