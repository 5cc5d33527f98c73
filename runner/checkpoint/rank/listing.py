"""What is in a checkpoint: each tensor's name, kind, shape and bytes, and the digests of its files. None is loaded."""

import hashlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from manyheads.runner.checkpoint.rank.load import load
from manyheads.runner.checkpoint.sharded import index as index_file
from manyheads.runner.checkpoint.sharded.rank.rank_share import NAMES, tensors
from manyheads.runner.errors import ConfigurationError, printable
from manyheads.runner.run.data_files import no_link


class TensorRow(NamedTuple):
    """``where``: the files that have pieces of it."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    size: int
    where: str = ""


def show(path: Path) -> None:
    """Print it. Raises ConfigurationError for what is no checkpoint."""
    path = path.resolve()
    about, rows, files = _folder(path) if path.is_dir() else _file(path)
    print(f"{printable(path)}: {about}")
    print()
    width = max((len(printable(row.name)) for row in rows), default=0)
    for row in rows:
        said = f"{printable(row.name):{width}}  {row.dtype:4}  {row.size:>14,}  {row.shape!s:20}  {row.where}"
        print(said.rstrip())
    print(f"{len(rows)} tensors, {sum(row.size for row in rows):,} bytes")
    print()
    for name, size, digest in files:
        print(f"{printable(name)}  {size:,} bytes  sha256 {printable(digest)}")


Found = tuple[str, list[TensorRow], list[tuple[str, int, str]]]


def _folder(path: Path) -> Found:
    """As its index says; a digest is compared where the checkpoint is loaded."""
    try:
        index = index_file.read(path)
    except (ValueError, OSError) as error:
        raise ConfigurationError(f"the checkpoint {path} is damaged or not a checkpoint: {error}.") from None
    rows = []
    for key, (kind, pieces) in index.tensors.items():
        where = list(dict.fromkeys(piece.file for piece in pieces))
        rows.append(TensorRow(key, kind.dtype, kind.shape, kind.size, ", ".join(where)))
    files = [(name, part.size, part.sha256) for name, part in index.files.items()]
    return f"step {index.step}, sharded, in {len(files)} files", rows, files


def _file(path: Path) -> Found:
    state = load(path, is_mapped=True)
    progress = state.get("progress")
    step = progress.get("step") if isinstance(progress, dict) else None
    rows = [
        TensorRow(name, NAMES.get(tensor.dtype, str(tensor.dtype)), tuple(tensor.shape), tensor.nbytes)
        for name, tensor in tensors(state)
    ]
    about = "a torch file" if step is None else f"step {step}, a single file"
    return about, rows, [*_digest(path)]


def _digest(path: Path) -> Iterator[tuple[str, int, str]]:
    with open(path, "rb", opener=no_link) as file:
        yield path.name, os.fstat(file.fileno()).st_size, hashlib.file_digest(file, "sha256").hexdigest()
