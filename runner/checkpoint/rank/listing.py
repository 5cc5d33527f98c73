"""The contents of a checkpoint: names, types, shapes and sizes of tensors, and digests of files. Loads no tensor."""

import hashlib
import os
from pathlib import Path

from manyheads.runner.checkpoint.page import CheckpointFile, CheckpointPage, ListedTensor
from manyheads.runner.checkpoint.rank.dtypes import NAMES
from manyheads.runner.checkpoint.rank.lazy import folder_format, tensors
from manyheads.runner.checkpoint.rank.load import load
from manyheads.runner.run.data_files import no_link


def contents(path: Path) -> CheckpointPage:
    """The contents of a checkpoint. Raises ConfigurationError if it is not one."""
    return folder_format().contents(path) if path.is_dir() else _file(path)


def _file(path: Path) -> CheckpointPage:
    state = load(path, is_mapped=True)
    progress = state.get("progress")
    step = progress.get("step") if isinstance(progress, dict) else None
    rows = [
        ListedTensor(name, NAMES.get(tensor.dtype, str(tensor.dtype)), tuple(tensor.shape), tensor.nbytes)
        for name, tensor in tensors(state)
    ]
    about = "a torch file" if step is None else f"step {step}, a single file"
    with open(path, "rb", opener=no_link) as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
        size = os.fstat(file.fileno()).st_size
    return CheckpointPage(path, about, rows, [CheckpointFile(path.name, size, digest)])
