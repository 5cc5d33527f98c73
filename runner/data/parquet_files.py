"""Opens Parquet files, wherever they are, and says where the bytes of a row group's columns are."""

import io
import sys
from typing import Any

import pyarrow
import pyarrow.parquet

from manyheads.runner.data.links import opened
from manyheads.runner.data.shards.files import File, LocalFile


def open_parquet(file: File) -> Any:
    """The open file, for forks of this process too. Raises OSError, pyarrow's exceptions and ConfigurationError."""
    if not isinstance(file, LocalFile):
        return pyarrow.parquet.ParquetFile(pyarrow.PythonFile(_Reader(file), "r"))
    with opened(file.path, file.within) as handle:
        # The same file by another descriptor, with positional reads, since loader processes share it.
        path = f"/proc/self/fd/{handle}" if sys.platform == "linux" else str(file.path)
        return pyarrow.parquet.ParquetFile(pyarrow.OSFile(path))


def fetch_ahead(source: Any, file: Any, group: int, column: str) -> None:
    """Request a column of a row group from object storage. ``source``: an ObjectFile; ``file``: what it holds."""
    about = file.metadata.row_group(group)
    for chunk in map(about.column, range(about.num_columns)):
        if chunk.path_in_schema.partition(".")[0] == column:
            pages = (chunk.dictionary_page_offset, chunk.data_page_offset)
            start = min(page for page in pages if page is not None)
            source.fetch_ahead(start, start + chunk.total_compressed_size)


class _Reader(io.RawIOBase):
    """A file as pyarrow reads it."""

    def __init__(self, file: File):
        self._file, self._at = file, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._at = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._file.size}[whence]
        return self._at

    def read(self, size: int = -1) -> bytes:
        content = self._file.read(self._at, self._file.size if size < 0 else self._at + size)
        self._at += len(content)
        return content
