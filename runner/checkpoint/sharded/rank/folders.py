"""What all checkpoints ask of sharded ones, through ``checkpoint/rank/lazy.folder_format``."""

from pathlib import Path

from manyheads.runner.checkpoint.page import CheckpointFile, CheckpointPage, ListedTensor
from manyheads.runner.checkpoint.rank.load import refusal
from manyheads.runner.checkpoint.sharded import index as index_file
from manyheads.runner.checkpoint.sharded.rank.read_sharded import opened
from manyheads.runner.checkpoint.sharded.rank.shard_files import copy_folder
from manyheads.runner.checkpoint.sharded.rank.write_sharded import Save, written
from manyheads.runner.wording import counted

__all__ = ["Save", "contents", "copy_folder", "opened", "written"]


def contents(path: Path) -> CheckpointPage:
    """The content of the index; the files' digests are compared only when the checkpoint is loaded.

    Raises ConfigurationError if it is not a checkpoint.
    """
    try:
        index = index_file.read(path)
    except (ValueError, OSError) as error:
        raise refusal(path, error) from None
    rows = []
    for key, (kind, pieces) in index.tensors.items():
        where = list(dict.fromkeys(piece.file for piece in pieces))
        rows.append(ListedTensor(key, kind.dtype, kind.shape, kind.size, ", ".join(where)))
    files = [CheckpointFile(name, part.size, part.sha256) for name, part in index.files.items()]
    return CheckpointPage(path, f"step {index.step}, sharded, in {counted(len(files), 'file')}", rows, files)
