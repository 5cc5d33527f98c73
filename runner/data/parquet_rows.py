"""Rows of Parquet files in any order: a row group is read completely for any of its rows, and kept for the next."""

import io
import json
import sys
from bisect import bisect_right
from collections import OrderedDict, deque
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property, partial
from itertools import accumulate
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import pyarrow
import pyarrow.parquet
from pyarrow import types

from manyheads.runner.data.links import opened
from manyheads.runner.data.read_ahead import ReadAhead
from manyheads.runner.data.samples import CorruptSample, StoredFile
from manyheads.runner.data.shards.files import File, LocalFile
from manyheads.runner.data.shards.folders import Folder
from manyheads.runner.errors import ConfigurationError, printable
from manyheads.runner.wording import first_line

LABELS = ("label", "labels", "target", "class", "fine_label", "cls")


class ParquetRows(Sequence[Any]):
    """The images of all rows of some files: item i is the content of a file, or its path if only that is recorded.

    ``names``: of the files in ``folder``; ``columns``: names of "input" and "label", or "auto"; ``cache_bytes``: most
    bytes of row groups that are kept; ``ahead``: batches whose row groups are fetched ahead from object storage.
    """

    def __init__(
        self, folder: Folder, names: Sequence[str], columns: Mapping[str, str], *, cache_bytes: int, ahead: int = 0
    ):
        self.root, self.cache_bytes = folder.root, cache_bytes
        self.paths = [f"{folder.root}/{name}" for name in names]
        self._sources, self._files = zip(*(self._open(folder, name) for name in names), strict=True)
        self.schema = self._files[0].schema_arrow
        for path, file in zip(self.paths, self._files, strict=True):
            if not file.schema_arrow.equals(self.schema):
                self._refuse(path, f"has other columns than {printable(names[0])}")
        self.input = self._input(columns["input"])
        self.is_image = self._is_image(self.input)
        self.label = self._label(columns["label"]) if self.is_image else None
        groups = [(file, number) for file, table in enumerate(self._files) for number in range(table.num_row_groups)]
        sizes = (self._files[file].metadata.row_group(number).num_rows for file, number in groups)
        self._groups, self._starts = groups, [0, *accumulate(sizes)]
        self._kept, self._kept_bytes = OrderedDict[int, Any](), 0
        self.read_ahead = ReadAhead(ahead, self._fetch_ahead) if ahead else None
        self._awaited: deque[set[int]] = deque(maxlen=ahead)  # row groups of the batches that are fetched ahead

    def __len__(self) -> int:
        return self._starts[-1]

    def __getitem__(self, index: Any) -> Any:
        row = range(len(self))[index]
        group = bisect_right(self._starts, row) - 1
        image = self._group(group)[row - self._starts[group]].as_py()
        if isinstance(image, Mapping):
            image = image["bytes"] if image.get("bytes") is not None else image.get("path")
        if isinstance(image, str):
            if isinstance(self.root, Path):
                return str(self.root.resolve() / image)
            raise CorruptSample(self._name(row, group), "it names a file, which object storage is not searched for")
        if image is None:
            raise CorruptSample(self._name(row, group), "it has no image")
        content = StoredFile(image)
        content.origin = partial(self._name, row, group)
        return content

    @cached_property
    def targets(self) -> np.ndarray:
        """The class number of each row (rows,). Raises ConfigurationError for values that are not class numbers."""
        columns = []
        for path, file in zip(self.paths, self._files, strict=True):
            column = file.read([self.label], use_threads=False).column(0)
            if column.null_count:
                self._refuse(path, f"has {column.null_count} rows without a value in the column {self.label}")
            columns.append(column.to_numpy())
        numbers = np.concatenate(columns)
        if len(numbers) and numbers.min() < 0:
            self._refuse(self.paths[0], f"has the class number {numbers.min()} in the column {self.label}")
        return numbers.astype(np.int64)

    @cached_property
    def class_names(self) -> list[str] | None:
        """The names of the classes as the datasets library records them; None if it does not."""
        try:
            about = json.loads((self.schema.metadata or {})[b"huggingface"])
            return [str(name) for name in about["info"]["features"][self.label]["names"]]
        except (KeyError, TypeError, ValueError):
            return None

    def texts(self) -> Iterator[str]:
        """The text of each row."""
        for file in self._files:
            for batch in file.iter_batches(columns=[self.input]):
                yield from (text or "" for text in batch.column(0).to_pylist())

    def _name(self, row: int, group: int) -> str:
        """File and row, for messages."""
        file = self._groups[group][0]
        first = self._starts[next(number for number, pair in enumerate(self._groups) if pair[0] == file)]
        return f"{printable(self.paths[file])}: row {row - first}"

    def _group(self, number: int) -> Any:
        """The input column of a row group, read unless it is kept."""
        if number in self._kept:
            self._kept.move_to_end(number)
            return self._kept[number]
        file, group = self._groups[number]
        try:
            column = self._files[file].read_row_group(group, [self.input], use_threads=False).column(0)
        except (OSError, pyarrow.ArrowException) as error:
            self._refuse(self.paths[file], f"cannot be read in its row group {group} ({first_line(error)})")
        self._kept[number] = column
        self._kept_bytes += column.nbytes
        while self._kept_bytes > self.cache_bytes and len(self._kept) > 1:
            self._kept_bytes -= self._kept.popitem(last=False)[1].nbytes
        return column

    def _open(self, folder: Folder, name: str) -> tuple[Any, Any]:
        try:
            source = folder.file(name)
            return source, open_parquet(source)
        except (OSError, pyarrow.ArrowException) as error:
            self._refuse(f"{folder.root}/{name}", f"is not a complete Parquet file ({first_line(error)})")

    def _fetch_ahead(self, samples: np.ndarray) -> None:
        """Request the input column of the row groups of a batch, unless that was done for the batches before it."""
        numbers = (np.searchsorted(np.asarray(self._starts), samples, "right") - 1).tolist()
        for number in dict.fromkeys(numbers):
            if not any(number in awaited for awaited in self._awaited):
                file, group = self._groups[number]
                fetch_ahead(self._sources[file], self._files[file], group, self.input)
        self._awaited.append({*numbers})

    def _is_image(self, name: str) -> bool:
        kind = self.schema.field(name).type
        has_bytes = types.is_struct(kind) and {"bytes", "path"} & {kind.field(i).name for i in range(kind.num_fields)}
        return bool(has_bytes) or types.is_binary(kind) or types.is_large_binary(kind)

    def _is_text(self, name: str) -> bool:
        kind = self.schema.field(name).type
        return bool(types.is_string(kind) or types.is_large_string(kind))

    def _input(self, wanted: str) -> str:
        images = [name for name in self.schema.names if self._is_image(name)]
        texts = sorted(filter(self._is_text, self.schema.names), key=lambda name: name != "text")
        return self._column("input", wanted, images + texts, "images ({bytes, path}, or binary) or text")

    def _label(self, wanted: str) -> str:
        numbers = [name for name in self.schema.names if types.is_integer(self.schema.field(name).type)]
        usual = [name for name in LABELS if name in numbers]
        return self._column("label", wanted, usual if wanted == "auto" else numbers, "whole numbers")

    def _column(self, key: str, wanted: str, fitting: list[str], what: str) -> str:
        if fitting and wanted in ("auto", *fitting):
            return fitting[0] if wanted == "auto" else wanted
        columns = ", ".join(f"{field.name} ({field.type})" for field in self.schema)
        reason = f": {printable(self.paths[0])} has no such column of {what}. Its columns are {printable(columns)}."
        raise ConfigurationError.at(f"data.{key}_column", wanted, reason, allowed=fitting)

    def _refuse(self, path: str, what: str) -> NoReturn:
        raise ConfigurationError.at("data.root", self.root, f": {printable(path)} {what}.")


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
