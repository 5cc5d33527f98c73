"""Builds the index of shards with checksums of all their bytes: of samples in tar shards, of blocks of other files."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from manyheads.runner.data.links import boundary
from manyheads.runner.data.shards.blocks import BlockTable
from manyheads.runner.data.shards.files import LocalFile
from manyheads.runner.data.shards.index import KINDS, TAR, TOKENS, Advance, ShardIndex, ShardKind
from manyheads.runner.data.shards.stored import StoredShards
from manyheads.runner.data.tar import stored
from manyheads.runner.data.token_files import index_of, inspect
from manyheads.runner.errors import ConfigurationError
from manyheads.runner.run import scratch
from manyheads.runner.run.objects import Address

Opened = Callable[[str], LocalFile]  # a file by its name below the root


def names_below(root: Path) -> list[str]:
    """The names of all shards below a folder, of whatever kind."""
    suffixes = tuple(suffix for kind in KINDS for suffix in kind.suffixes)
    return sorted(path.relative_to(root).as_posix() for path in root.rglob("*") if path.name.endswith(suffixes))


def kind_of(names: Sequence[str], root: Path | Address) -> ShardKind:
    """The kind of shards that these files are. Raises ConfigurationError if there are none."""
    match = next((kind for kind in KINDS if any(name.endswith(kind.suffixes) for name in names)), None)
    if match is None:
        *first, last = (suffix for kind in KINDS for suffix in kind.suffixes)
        raise ConfigurationError.at("folder", root, f": no file below it ends in {', '.join(first)} or {last}.")
    return match


def index_blocks(root: Path, names: Sequence[str], kind: ShardKind, advance: Advance) -> ShardIndex:
    """An index of files in a folder. Raises ConfigurationError."""
    table, within = BlockTable(), boundary(root)
    for name in names:
        add_file(table, name, names, kind, lambda name: LocalFile(root / name, within))
        advance()
    return table.index(root, kind)


def index_stored(shards: StoredShards, advance: Advance) -> ShardIndex:
    """An index of shards in object storage, each of which is read once. Raises ConfigurationError."""
    kind = kind_of([*shards.objects], shards.address)
    if kind is TAR:
        return stored.build(shards, advance)
    names, table = [shard.name for shard in shards.files(kind)], BlockTable()
    for name in names:
        with _fetched(shards) as fetch:
            add_file(table, name, names, kind, fetch)
        advance()
    return table.index(shards.address, kind)


def add_file(table: BlockTable, name: str, names: Sequence[str], kind: ShardKind, opened: Opened) -> None:
    """Add one of the files called ``names``. Raises ConfigurationError, OSError."""
    file, highest = opened(name), None
    if kind is TOKENS and name.endswith(TOKENS.suffixes[0]):
        index = index_of(name)
        highest = inspect(file, opened(index) if index in names else None).highest
    table.add(name, file, highest)


@contextmanager
def _fetched(shards: StoredShards) -> Iterator[Opened]:
    """A context with a function that copies an object to the local disk, until the context ends."""
    with ExitStack() as stack:

        def fetch(name: str) -> LocalFile:
            copy = stack.enter_context(scratch.folder()) / "copy"
            with open(copy, "wb") as file:
                shards.save(name, file)
            return LocalFile(copy, None, f"{shards.address}/{name}")

        yield fetch
