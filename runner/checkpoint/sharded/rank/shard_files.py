"""Writes the files of a sharded checkpoint: tensors, the index that completes it, and the best checkpoint's links."""

import hashlib
import os
import shutil
from pathlib import Path
from typing import Any, NamedTuple

from manyheads.runner.checkpoint.rank.lazy import real
from manyheads.runner.checkpoint.sharded import index as index_file
from manyheads.runner.checkpoint.sharded import safetensors_file
from manyheads.runner.checkpoint.sharded.index import Box, CheckpointIndex, FileDigest, Piece
from manyheads.runner.checkpoint.sharded.rank.read_sharded import bytes_of
from manyheads.runner.checkpoint.sharded.safetensors_file import TensorKind
from manyheads.runner.run.checkpoint_places import INDEX
from manyheads.runner.run.data_files import no_link
from manyheads.runner.run.files import make_folder, sync_folder, take_name
from manyheads.runner.run.folder import Folder, aside

MODEL = "model/"  # prefix of the keys of weights
BEST = (MODEL, "progress/")  # the best checkpoint's content, kept in separate files
AVERAGE = "average/weights/"  # replaces its weights, if evaluations use averaged weights
PARTS_OF_BEST = ("version", "versions", "model", "progress")


class Chosen(NamedTuple):
    """A piece of a tensor that this rank writes."""

    key: str
    kind: TensorKind
    box: Box
    tensor: Any  # may still be on the disk

    @property
    def name(self) -> str:
        """Its name in the file: the tensor's name, followed by the box unless the piece is the complete tensor."""
        name = self.key.removeprefix(MODEL)
        return name if self.box.shape == self.kind.shape else f"{name}{self.box}"

    @property
    def bytes(self) -> memoryview:
        return bytes_of(real(self.tensor).detach().cpu().contiguous())


def write_file(path: Path, chosen: list[Chosen], about: dict[str, str]) -> tuple[FileDigest, list[tuple[str, Piece]]]:
    """Write a new file of tensors and sync it to disk; return it and its pieces by key. Raises OSError."""
    by_name = {part.name: part for part in chosen}
    kinds = safetensors_file.by_size((name, part.kind._replace(shape=part.box.shape)) for name, part in by_name.items())
    begin, begins = safetensors_file.header(kinds, about)
    digest, size = hashlib.sha256(begin), len(begin)
    with open(path, "xb", opener=no_link, buffering=0) as file:
        whole_write(file, begin)
        for name in kinds:
            content = by_name[name].bytes
            whole_write(file, content)
            digest.update(content)
            size += len(content)
        os.fsync(file.fileno())
    pieces = [(part.key, Piece(path.name, begins[name], part.box)) for name, part in by_name.items()]
    return FileDigest(size, digest.hexdigest()), pieces


def whole_write(file: Any, content: Any) -> None:
    """Write all of ``content``, however little the disk accepts at once."""
    rest = memoryview(content)
    while len(rest):
        rest = rest[file.write(rest) :]


def write_index(folder: Path, index: CheckpointIndex) -> None:
    """Write the index, which comes last because it makes a folder a checkpoint."""
    with open(folder / INDEX, "xb", opener=no_link, buffering=0) as file:
        whole_write(file, index.content())
        os.fsync(file.fileno())
    sync_folder(folder)


def link_best(folder: Path, best: Path, index: CheckpointIndex) -> None:
    """Create the best checkpoint from the weights of one in ``folder``, by hard links to the same files."""
    tensors = {key: entry for key, entry in index.tensors.items() if key.startswith(BEST)}
    if index.state.get("average", {}).get("is_evaluated"):
        tensors = {key: index.tensors.get(AVERAGE + key.removeprefix(MODEL), entry) for key, entry in tensors.items()}
    names = sorted({piece.file for entry in tensors.values() for piece in entry.pieces})
    state = {name: value for name, value in index.state.items() if name in PARTS_OF_BEST}
    beside = best.with_name(aside(best.name))
    make_folder(beside)
    with Folder(folder) as source, Folder(beside) as target:
        for name in names:
            os.link(name, name, src_dir_fd=source.handle, dst_dir_fd=target.handle, follow_symlinks=False)
    files = {name: index.files[name] for name in names}
    write_index(beside, CheckpointIndex(index.step, index.generation, state, tensors, files))
    take_name(beside, best)


def copy_folder(path: Path, target: Path) -> None:
    """Copy a checkpoint folder completely; does nothing if ``target`` already exists."""
    if target.exists():
        return
    beside = target.with_name(aside(target.name))
    make_folder(beside)
    for name in [*index_file.read(path).files, INDEX]:
        with open(path / name, "rb", opener=no_link) as file, open(beside / name, "xb", opener=no_link) as copy:
            shutil.copyfileobj(file, copy, 2**24)
            copy.flush()
            os.fsync(copy.fileno())
    sync_folder(beside)
    take_name(beside, target)
