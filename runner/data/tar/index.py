"""The index of tar shards in a folder: where each field of each sample is, so that any sample can be read directly.

``manyheads index`` and ``manyheads pack`` write it beside the shards; else it is in the user's cache, and rebuilt if a
shard has changed. It is built from an index of Megatron-Energon if there is one (energon.py).
"""

import hashlib
import os
from dataclasses import replace
from pathlib import Path

from manyheads.runner.data.links import boundary, nearest_path
from manyheads.runner.data.shards.index import BLOCKS, NAME, Advance, ShardFile, ShardIndex, check_shards, outdated
from manyheads.runner.errors import ConfigurationError
from manyheads.runner.machine.user_folders import cache_folder
from manyheads.runner.run.files import in_turn

SUFFIX = ".tar"
CLASS = "cls"


def open_index(root: Path, advance: Advance = lambda: None) -> ShardIndex:
    """The index of all shards below ``root``.

    Raises ConfigurationError for shards that are damaged, or do not belong to the index beside them.
    """
    from manyheads.runner.data.shards import index_file
    from manyheads.runner.data.tar import energon, table

    files = list_shards(root)
    if (root / NAME).is_file():
        beside = index_file.read(root, root / NAME, within=boundary(root))
        if beside is None or beside.about.checked == BLOCKS:
            raise outdated(root, f"{NAME} is damaged, or was written by another version, or for other files")
        check_shards(beside, files)
        return beside
    make = energon.build if energon.has_index(root) else table.build
    if (cache := cache_folder("tar")) is None:
        return make(root, files, advance)
    name = hashlib.sha256(os.fsencode(root.absolute())).hexdigest()[:32]
    try:
        file = cache / name
        with in_turn(file.with_suffix(".lock")):
            stored = index_file.read(root, file) if file.exists() else None
            if stored is not None and _states(stored) == files:
                return stored
            index = make(root, files, advance)
            stated = replace(index.about, state=tuple(shard.state for shard in files))
            index_file.write(replace(index, about=stated), file)
            return index_file.read(root, file) or index
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
        reason = (
            ": no file below it ends in .tar." if root.is_dir() else f": there is no such folder.{nearest_path(root)}"
        )
        raise ConfigurationError.at(
            "data.root", root, f"{reason} Set it to the folder of the shards, which must not be compressed."
        )
    return sorted(shards)


def state_of(path: str | Path) -> tuple[int, ...]:
    """Size, inode and times of a file: all that is known of it without reading it. Raises OSError."""
    status = os.stat(path)
    return status.st_size, status.st_ino, status.st_mtime_ns, status.st_ctime_ns


def _states(index: ShardIndex) -> list[ShardFile]:
    shards, states = index.about.shards, index.about.state
    return [ShardFile(shard.name, shard.size, state) for shard, state in zip(shards, states, strict=False)]
