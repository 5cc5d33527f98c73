"""The index that Megatron-Energon keeps beside tar shards: ``.nv-meta/index.sqlite``.

Source: https://github.com/NVIDIA/Megatron-Energon, flavors/webdataset/indexing.py. The table ``sample_parts`` has the
offset and size of each file, ``samples`` the keys; a ``tar_file_id`` counts the shards that ``.info.json``, or
``.info.yaml`` of older versions, lists.
"""

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path

from manyheads.runner.data.links import boundary, refuse_leaving
from manyheads.runner.data.shards.index import NONE, Advance, ShardFile, ShardIndex
from manyheads.runner.data.tar.index import TarTable
from manyheads.runner.data.tar.walk import BLOCK, Member, Unsound
from manyheads.runner.errors import ConfigurationError, printable
from manyheads.runner.run import yaml_text
from manyheads.runner.run.data_files import parse_json, read_text

FOLDER = ".nv-meta"
DATABASE = f"{FOLDER}/index.sqlite"
INFOS = (f"{FOLDER}/.info.json", f"{FOLDER}/.info.yaml")
TABLES = {"samples", "sample_parts"}
PARTS = """
    SELECT s.sample_key, p.part_name, p.content_byte_offset, p.content_byte_size
    FROM sample_parts AS p JOIN samples AS s ON s.tar_file_id = p.tar_file_id AND s.sample_index = p.sample_index
    WHERE p.tar_file_id = ? ORDER BY p.sample_index, p.content_byte_offset
"""


def has_index(root: Path) -> bool:
    """Whether there is such an index, with the offsets of files, which its first versions did not record."""
    if not (root / DATABASE).is_file() or not any((root / name).is_file() for name in INFOS):
        return False
    try:
        with closing(_connected(root)) as database:
            kinds = dict(database.execute("SELECT name, type FROM sqlite_master"))
    except sqlite3.Error as error:
        raise _unreadable(root, error) from None
    return all(kinds.get(name) == "table" for name in TABLES)  # a view could compute anything


def build(root: Path, files: Sequence[ShardFile], advance: Advance = lambda: None) -> ShardIndex:
    """An index of these shards without reading them, except for class numbers. Raises ConfigurationError.

    It has no checksums: a file's header is checked when it is read.
    """
    numbers = {name: number for number, name in enumerate(_shards(root))}
    if missing := sorted(numbers.keys() - {file.name for file in files}):
        raise ConfigurationError.at("data.root", root, f": {DATABASE} names {printable(missing[0])}, which is missing.")
    table = TarTable(checked=NONE)
    try:
        with closing(_connected(root)) as database:
            for shard in files:
                table.add_shard(root, shard, partial(_members, database, numbers.get(shard.name)))
                advance()
    except sqlite3.Error as error:
        raise _unreadable(root, error) from None
    return table.index(root)


def _members(database: sqlite3.Connection, number: int | None, handle: int, size: int) -> Iterator[Member]:
    """The files of shard ``number``, whose file has ``size`` bytes. Raises Unsound."""
    if number is None:
        raise Unsound(f"it is not in {DATABASE}. Run energon prepare again, or remove {FOLDER}")
    for key, field, offset, length in database.execute(PARTS, (number,)):
        is_sound = (
            isinstance(key, str) and isinstance(field, str) and isinstance(offset, int) and isinstance(length, int)
        )
        if not is_sound or offset < BLOCK or length < 0 or offset + length > size:
            raise Unsound(
                f"it has {size:,} bytes, but {DATABASE} says that {key}.{field} is at bytes {offset} to {offset} + "
                f"{length}. Run energon prepare again, or remove {FOLDER}"
            )
        yield Member(key, field.lower(), offset, length, b"")


def _connected(root: Path) -> sqlite3.Connection:
    """A connection that writes nothing, not even beside the file, and runs nothing that the file defines."""
    path = (root / DATABASE).absolute()
    refuse_leaving(path, boundary(root))
    database = sqlite3.connect(f"{path.as_uri()}?mode=ro&immutable=1", uri=True)
    database.execute("PRAGMA trusted_schema = OFF")
    return database


def _shards(root: Path) -> list[str]:
    """The names of the shards below the root, in Energon's order. Raises ConfigurationError."""
    path = next(root / name for name in INFOS if (root / name).is_file())
    try:
        content = (parse_json if path.suffix == ".json" else yaml_text.parse)(read_text(path))
        return [str(name) for name in content["shard_counts"]]
    except (OSError, ValueError, KeyError, TypeError, RecursionError, yaml_text.Error):
        raise ConfigurationError.at("data.root", root, f": {printable(path)} has no shard_counts.") from None


def _unreadable(root: Path, error: sqlite3.Error) -> ConfigurationError:
    return ConfigurationError.at(
        "data.root",
        root,
        f": {DATABASE} cannot be read ({error}). Remove it: the shards' headers are then read instead.",
    )
