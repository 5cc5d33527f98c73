"""index.json of a sharded checkpoint: its tensors, and the file and position of each of their pieces.

It is read without torch and treated as untrusted data: every number in it is checked against the files before any
tensor is read.
"""

import hashlib
import json
import math
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from manyheads.runner.checkpoint.sharded import safetensors_file
from manyheads.runner.checkpoint.sharded.safetensors_file import ITEM_BYTES, TensorKind
from manyheads.runner.errors import ConfigurationError
from manyheads.runner.run.checkpoint_places import INDEX, Damaged
from manyheads.runner.run.data_files import no_link, read_bytes

VERSION = 1
MOST_BYTES = 2**29  # of an index: some hundred bytes for each piece


class Box(NamedTuple):
    """A block of a tensor's entries: ``shape`` of them from ``offset``, along each dimension; both () for a scalar."""

    offset: tuple[int, ...]
    shape: tuple[int, ...]

    @classmethod
    def whole(cls, shape: Sequence[int]) -> "Box":
        return cls((0,) * len(shape), tuple(shape))

    @property
    def numel(self) -> int:
        return math.prod(self.shape)

    def overlap(self, other: "Box") -> "Box | None":
        """The entries that both boxes contain; None if there are none."""
        offset = tuple(map(max, self.offset, other.offset))
        ends = (min(a + m, b + n) for a, m, b, n in zip(*self, *other, strict=True))
        shape = tuple(end - begin for begin, end in zip(offset, ends, strict=True))
        return Box(offset, shape) if all(size > 0 for size in shape) else None

    def inside(self, other: "Box") -> tuple[slice, ...]:
        """The slices of this box in a tensor that holds the box ``other``."""
        begins = [a - b for a, b in zip(self.offset, other.offset, strict=True)]
        return tuple(slice(begin, begin + size) for begin, size in zip(begins, self.shape, strict=True))

    def __str__(self) -> str:
        """Such as ``[0:16, 8:12]``."""
        return f"[{', '.join(f'{begin}:{begin + size}' for begin, size in zip(*self, strict=True))}]"


class Piece(NamedTuple):
    """A piece of a tensor. ``box``: its position in the tensor; ``begin``: the offset of its first byte in ``file``."""

    file: str
    begin: int
    box: Box


class TensorEntry(NamedTuple):
    """A complete tensor: its type and shape, and its pieces."""

    kind: TensorKind
    pieces: tuple[Piece, ...]


class FileDigest(NamedTuple):
    """One of the checkpoint's files: its size in bytes and its sha256."""

    size: int
    sha256: str


@dataclass(frozen=True)
class CheckpointIndex:
    """The content of index.json.

    ``generation``: identifies one save, and is in each of its files; ``state``: all values that are not tensors, with
    keys in the places of tensors.
    """

    step: int
    generation: str
    state: Any
    tensors: dict[str, TensorEntry]
    files: dict[str, FileDigest]

    def content(self) -> bytes:
        """The bytes of the file, which include a digest of the rest."""
        tensors = {
            key: {"dtype": kind.dtype, "shape": kind.shape, "pieces": [(p.file, p.begin, *p.box) for p in pieces]}
            for key, (kind, pieces) in self.tensors.items()
        }
        files = {name: {"bytes": size, "sha256": sha256} for name, (size, sha256) in self.files.items()}
        header = {"version": VERSION, "step": self.step, "generation": self.generation}
        content = {**header, "files": files, "tensors": tensors, "state": self.state}
        return _text({**content, "sha256": hashlib.sha256(_text(content)).hexdigest()})

    @property
    def size(self) -> int:
        """Size of all tensors in bytes."""
        return sum(kind.size for kind, _ in self.tensors.values())


def read(folder: Path) -> CheckpointIndex:
    """Read the index in a folder. Raises Damaged, also if it is from a newer version; OSError."""
    try:
        most = min(MOST_BYTES, (folder / INDEX).stat().st_size)  # this much memory is allocated for it
        content = json.loads(read_bytes(folder / INDEX, most=most))
        version, digest = content["version"], content.pop("sha256")
        if isinstance(version, int) and version > VERSION:
            raise Damaged("it was written by a newer version of manyheads. Update it")
        if hashlib.sha256(_text(content)).hexdigest() != digest:
            raise Damaged(f"the sha256 of {INDEX} is wrong")
        index = _parsed(content)
        _check(index)
    except (Damaged, ConfigurationError):
        raise
    except (LookupError, TypeError, AttributeError, ValueError, ArithmeticError, RecursionError):
        raise Damaged(f"{INDEX} is not the index of a checkpoint") from None
    return index


def wrong_with(folder: Path, index: CheckpointIndex, names: list[str]) -> str | None:
    """A clause on what is wrong with these files of a checkpoint; None if nothing is. Reads them completely."""
    for name in names:
        size, digest = index.files[name]
        try:
            with open(folder / name, "rb", opener=no_link) as file:
                if os.fstat(file.fileno()).st_size != size:
                    return _of_other_save(folder / name, index) or f"{name} no longer has its {size} bytes"
                if hashlib.file_digest(file, "sha256").hexdigest() != digest:
                    return _of_other_save(folder / name, index) or f"the sha256 of {name} is wrong"
        except FileNotFoundError:
            return f"{name} is missing"
    return None


def _of_other_save(path: Path, index: CheckpointIndex) -> str | None:
    try:
        with open(path, "rb", opener=no_link) as file:
            about = safetensors_file.about(file)
    except (ValueError, RecursionError):
        return None
    if about.get("generation", index.generation) == index.generation:
        return None
    return f"{path.name} belongs to another checkpoint, that of step {about.get('step')}"


def _parsed(content: dict[str, Any]) -> CheckpointIndex:
    files = {name: FileDigest(int(one["bytes"]), str(one["sha256"])) for name, one in content["files"].items()}
    tensors = {}
    for key, one in content["tensors"].items():
        pieces = tuple(
            Piece(file, int(begin), Box(_whole(offset), _whole(shape))) for file, begin, offset, shape in one["pieces"]
        )
        tensors[key] = TensorEntry(TensorKind(one["dtype"], _whole(one["shape"])), pieces)
    return CheckpointIndex(int(content["step"]), str(content["generation"]), content["state"], tensors, files)


def _whole(numbers: Any) -> tuple[int, ...]:
    if not all(type(number) is int and number >= 0 for number in numbers):
        raise TypeError
    return tuple(numbers)


def _check(index: CheckpointIndex) -> None:
    """Raises Damaged for pieces that do not make up their tensors, or are outside their files."""
    for name in index.files:
        if Path(name).name != name or not name.endswith(safetensors_file.SUFFIX):
            raise Damaged(f"{INDEX} names a file {name!r}, which is not allowed")
    for key, (kind, pieces) in index.tensors.items():
        if kind.dtype not in ITEM_BYTES:
            raise Damaged(f"{key} has the unknown type {kind.dtype!r}")
        box = Box.whole(kind.shape)
        for piece in pieces:
            end = piece.begin + piece.box.numel * ITEM_BYTES[kind.dtype]
            if piece.file not in index.files or piece.begin < 0 or end > index.files[piece.file].size:
                raise Damaged(f"a piece of {key} lies outside its file")
            if len(piece.box.shape) != len(kind.shape) or (piece.box.numel and piece.box.overlap(box) != piece.box):
                raise Damaged(f"a piece of {key} lies outside its tensor")
        if sum(piece.box.numel for piece in pieces) != box.numel:
            raise Damaged(f"{key} is not complete")
    if index.size > (most := sum(part.size for part in index.files.values())):
        raise Damaged(f"its tensors would take {index.size:,} bytes, and its files have {most:,}")


def _text(content: Any) -> bytes:
    return json.dumps(content, separators=(",", ":"), allow_nan=False).encode()
