"""An index of tar shards: where each field of each sample is, so that any sample can be read directly.

``manyheads index`` and ``manyheads pack`` write it beside the shards; else it is in the user's cache, and rebuilt if a
shard has changed. It is built from an index of Megatron-Energon if there is one (energon.py).
"""

import hashlib
import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from manyheads.runner.data.links import boundary, opened
from manyheads.runner.data.tar.walk import Unsound, members
from manyheads.runner.errors import ConfigurationError, printable
from manyheads.runner.machine import invocation
from manyheads.runner.machine.user_folders import user_folder
from manyheads.runner.run.files import in_turn
from manyheads.runner.run.storage.address import Address

if TYPE_CHECKING:  # the parent of other runs starts without it
    import numpy as np

NAME = ".manyheads-index"
CLASS = "cls"
NONE, HEADERS, CONTENTS = "none", "headers", "headers and contents"  # what checksums cover
Advance = Callable[[], None]  # called when another shard has been read


class Found(NamedTuple):
    """A tar file below the root. ``state``: its inode, and the times of its last changes."""

    name: str
    size: int
    state: tuple[int, ...]


class Shard(NamedTuple):
    """A tar file in an index: its name below the root, its size in bytes, and the number of its samples."""

    name: str
    size: int
    samples: int


@dataclass(frozen=True)
class About:
    """What an index says about its shards.

    ``checked``: what its checksums cover; ``classes``: one more than the highest class number, None if not every
    sample has one; ``unlabelled``: the first sample that has none; ``state``: of each shard, for an index in the cache;
    ``digest``: the sha256 of the index's content, once it has been written.
    """

    shards: tuple[Shard, ...]
    fields: tuple[str, ...]
    checked: str
    classes: int | None
    unlabelled: str = ""
    state: tuple[tuple[int, ...], ...] = ()
    digest: str = ""


@dataclass(frozen=True)
class Index:
    """The index of all shards below ``root``.

    ``entries``: ENTRY (samples, fields), offset 0 for a missing field; ``targets``: class numbers (samples,).
    """

    root: Path | Address
    about: About
    entries: "np.ndarray"
    targets: "np.ndarray | None"

    def files(self, number: int) -> Iterator[tuple[int, str]]:
        """Offset and name of each file in a shard, for messages; as far as the shard can still be read."""
        assert isinstance(self.root, Path)
        path = self.root / self.about.shards[number].name
        with suppress(OSError, Unsound), opened(path, boundary(self.root)) as handle:
            for member in members(handle, os.fstat(handle).st_size):
                yield member.offset, f"{member.key}.{member.field}"

    def changed(self, number: int, what: str) -> ConfigurationError:
        """The error for a shard that differs from what was indexed."""
        return _outdated(self.root, f"the shard {printable(self.about.shards[number].name)} {what}")


def open_index(root: Path, advance: Advance = lambda: None) -> Index:
    """The index of all shards below ``root``.

    Raises ConfigurationError for shards that are damaged, or do not belong to the index beside them.
    """
    from manyheads.runner.data.tar import energon, index_file, table

    found = list_shards(root)
    if (root / NAME).is_file():
        beside = index_file.read(root, root / NAME, within=boundary(root))
        if beside is None:
            raise _outdated(root, f"{NAME} is damaged, or was written by another version")
        check_shards(beside, found)
        return beside
    make = energon.build if energon.has_index(root) else table.build
    cache = user_folder("cache")
    if cache is None:
        return make(root, found, advance)
    name = hashlib.sha256(os.fsencode(root.absolute())).hexdigest()[:32]
    try:
        (cache / "manyheads" / "tar").mkdir(mode=0o700, parents=True, exist_ok=True)
        file = (cache / "manyheads" / "tar").resolve() / name
        with in_turn(file.with_suffix(".lock")):
            known = index_file.read(root, file) if file.exists() else None
            if known is not None and _states(known) == found:
                return known
            index = make(root, found, advance)
            stated = replace(index.about, state=tuple(each.state for each in found))
            index_file.write(replace(index, about=stated), file)
            return index_file.read(root, file) or index
    except OSError:  # a cache that is full or can't be written: each process builds its own index
        return make(root, found, advance)


def list_shards(root: Path) -> list[Found]:
    """The tar files below ``root``, by name. Raises ConfigurationError if there are none."""
    found = []
    for folder, _, files in os.walk(root):
        for path in (os.path.join(folder, name) for name in files if name.endswith(".tar")):
            size, *state = state_of(path)
            found.append(Found(os.path.relpath(path, root), size, tuple(state)))
    if not found:
        reason = ": no file below it ends in .tar" if root.is_dir() else ": there is no such folder"
        raise ConfigurationError.at(
            "data.root", root, f"{reason}. Set it to the folder of the shards, which must not be compressed."
        )
    return sorted(found)


def state_of(path: str | Path) -> tuple[int, ...]:
    """Size, inode and times of a file: all that is known of it without reading it. Raises OSError."""
    status = os.stat(path)
    return status.st_size, status.st_ino, status.st_mtime_ns, status.st_ctime_ns


def _states(index: Index) -> list[Found]:
    shards, states = index.about.shards, index.about.state
    return [Found(each.name, each.size, state) for each, state in zip(shards, states, strict=False)]


def check_shards(index: Index, found: list[Found]) -> None:
    """Raises ConfigurationError unless the index beside the shards matches those that were found."""
    here = {each.name: each.size for each in found}
    for number, shard in enumerate(index.about.shards):
        if shard.name not in here:
            raise index.changed(number, "is missing, but was there when the shards were indexed")
        if here[shard.name] != shard.size:
            was = f"has {here[shard.name]:,} bytes, and had {shard.size:,} when it was indexed"
            raise index.changed(number, was)
    if added := sorted(here.keys() - {each.name for each in index.about.shards}):
        raise _outdated(index.root, f"the shard {printable(added[0])} was added after the others were indexed")


def _outdated(root: Path | Address, what: str) -> ConfigurationError:
    command = invocation.command("index", root)
    return ConfigurationError.at("data.root", root, f": {what}. If that is right, index again: {command}")
