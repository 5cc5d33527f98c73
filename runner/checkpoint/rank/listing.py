"""The contents of a checkpoint: names, types, shapes and sizes of tensors, and digests of files. Loads no tensor."""

import hashlib
import os
from collections.abc import Iterator
from pathlib import Path

from manyheads.runner.checkpoint.page import CheckpointFile, CheckpointPage, ListedTensor
from manyheads.runner.checkpoint.rank.lazy import tensors
from manyheads.runner.checkpoint.rank.load import load, refusal
from manyheads.runner.checkpoint.sharded import index as index_file
from manyheads.runner.checkpoint.sharded.rank.rank_share import NAMES
from manyheads.runner.run.data_files import no_link
from manyheads.runner.wording import counted


def contents(path: Path) -> CheckpointPage:
    """The contents of a checkpoint. Raises ConfigurationError if it is not one."""
    about, tensors_found, files = _folder(path) if path.is_dir() else _file(path)
    return CheckpointPage(path, about, tensors_found, files)


Found = tuple[str, list[ListedTensor], list[CheckpointFile]]


def _folder(path: Path) -> Found:
    """The content of the index; the files' digests are compared only when the checkpoint is loaded."""
    try:
        index = index_file.read(path)
    except (ValueError, OSError) as error:
        raise refusal(path, error) from None
    rows = []
    for key, (kind, pieces) in index.tensors.items():
        where = list(dict.fromkeys(piece.file for piece in pieces))
        rows.append(ListedTensor(key, kind.dtype, kind.shape, kind.size, ", ".join(where)))
    files = [CheckpointFile(name, part.size, part.sha256) for name, part in index.files.items()]
    return f"step {index.step}, sharded, in {counted(len(files), 'file')}", rows, files


def _file(path: Path) -> Found:
    state = load(path, is_mapped=True)
    progress = state.get("progress")
    step = progress.get("step") if isinstance(progress, dict) else None
    rows = [
        ListedTensor(name, NAMES.get(tensor.dtype, str(tensor.dtype)), tuple(tensor.shape), tensor.nbytes)
        for name, tensor in tensors(state)
    ]
    about = "a torch file" if step is None else f"step {step}, a single file"
    return about, rows, [*_digest(path)]


def _digest(path: Path) -> Iterator[CheckpointFile]:
    with open(path, "rb", opener=no_link) as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
        yield CheckpointFile(path.name, os.fstat(file.fileno()).st_size, digest)
