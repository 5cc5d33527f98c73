"""The files of a table: which of them belong to which split, and their columns as texts."""

import csv
import io
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
from pyarrow import compute, parquet
from pyarrow import csv as arrow

from manyheads.runner.data.left_out import LeftOut
from manyheads.runner.data.links import boundary, nearest_path, opened
from manyheads.runner.data.table.kinds import setting
from manyheads.runner.data.table.option import IGNORED
from manyheads.runner.errors import ConfigurationError, printable
from manyheads.runner.wording import nearest

PARQUET = (".parquet", ".pq")
SUFFIXES = (".csv", ".tsv", ".txt", *(f"{suffix}.gz" for suffix in (".csv", ".tsv", ".txt")), *PARQUET)
SPLITS = {"train": "train", "training": "train", "val": "val", "valid": "val", "validation": "val", "test": "test"}
DELIMITERS = (",", ";", "\t", "|")
MISSING = ("", "NA", "N/A", "n/a", "NaN", "nan", "NULL", "null", "None", "?")
MOST_SHOWN = 500  # characters of the columns' names in a message
HEAD = 2**16  # bytes in which the names of the columns are looked for


@dataclass(frozen=True)
class TableFormat:
    """How files are read: ``delimiter``, "auto" to look; ``decimal`` point; ``missing``: further texts for no value."""

    delimiter: str
    decimal: str
    missing: tuple[str, ...]


@dataclass(frozen=True)
class TextColumns:
    """Columns by name, as texts without spaces around them, null where there is no value.

    ``are_text``: those that a file itself declares as text, whatever they look like; ``files``: with their rows;
    ``kept``: the positions in the files of these rows, None for all.
    """

    columns: Mapping[str, pyarrow.ChunkedArray]
    are_text: frozenset[str]
    files: tuple[tuple[Path, int], ...]
    kept: np.ndarray | None = None

    def __len__(self) -> int:
        return sum(rows for _, rows in self.files) if self.kept is None else len(self.kept)

    def filtered(self, keeps: np.ndarray) -> "TextColumns":
        """The rows for which ``keeps``, (N,) bool, is true."""
        kept = np.flatnonzero(keeps) if self.kept is None else self.kept[keeps]
        mask = pyarrow.array(keeps)
        return replace(self, columns={name: column.filter(mask) for name, column in self.columns.items()}, kept=kept)

    def row(self, number: int) -> str:
        """A row, counted from 0 over all files, in words."""
        number = number if self.kept is None else int(self.kept[number])
        for path, rows in self.files:
            if number < rows:
                return f"row {number + 1:,} of {printable(path.name)}"
            number -= rows
        raise IndexError(number)


def files_of(root: str | Sequence[str]) -> dict[str, list[Path]]:
    """The files of each split that has any: train, val and test. Raises ConfigurationError.

    A file belongs to the split that its name, or a folder's below the root, has as a word; to train without one.
    """
    if isinstance(root, str) and not Path(root).is_dir():
        return {"train": [_existing(root)]}
    given = [root] if isinstance(root, str) else root
    named = [(file, name) for root in given for file, name in _below(_existing(root))]
    if not named:
        raise ConfigurationError.at("data.root", root, f": there is no table in it. Allowed: {', '.join(SUFFIXES)}.")
    splits: dict[str | None, list[Path]] = {}
    for file, name in named:
        splits.setdefault(_split_of(name), []).append(file)
    others = splits.pop(None, [])
    if "train" in splits:
        LeftOut.of(file.name for file in others).warn("table", ", since other files have train in their names.")
        others = []
    train = splits.pop("train", others)
    if not train:
        listed = ", ".join(sorted(name for _, name in named))
        raise ConfigurationError.at(
            "data.root", root, f": none of {listed} is for training. Name one train{named[0][0].suffix}."
        )
    return {"train": train, **{split: splits[split] for split in ("val", "test") if split in splits}}


def _existing(path: str) -> Path:
    if not Path(path).exists():
        raise ConfigurationError.at(
            "data.root",
            path,
            f" does not exist.{nearest_path(Path(path))} Set it to a file, a list of files, or a folder.",
        )
    return Path(path)


def _below(root: Path) -> Iterator[tuple[Path, str]]:
    """The tables in a folder with their names below it; a file itself."""
    if not root.is_dir():
        yield root, root.name
        return
    for file in sorted(root.rglob("*")):
        name = file.relative_to(root).as_posix()
        if name.lower().endswith(SUFFIXES) and not re.search(r"(^|/)\.", name) and file.is_file():
            yield file, name


def _split_of(name: str) -> str | None:
    words = re.split(r"[^a-z]+", name.lower())
    return next((SPLITS[word] for word in words if word in SPLITS), None)


def read(files: Sequence[Path], how: TableFormat, *, only: str | None = None) -> TextColumns:
    """The rows of these files, one after another, with the columns of the first. ``only``: the one that is read.

    Raises ConfigurationError for files that cannot be read, have no rows, or have other columns.
    """
    parts, are_text = list[dict[str, Any]](), set[str]()
    for file in files:
        with opened(file, boundary(file.parent)) as handle, open(handle, "rb", closefd=False) as source:
            is_parquet = file.name.lower().endswith(PARQUET)
            columns, texts = (_parquet if is_parquet else _csv)(file, source, how, only)
        are_text |= texts
        if parts and (differing := sorted({*columns} ^ {*parts[0]})):
            raise ConfigurationError.at(
                "data.root",
                file,
                f" and {files[0]} differ in their columns: {printable(', '.join(differing))}. Give "
                "all files the same ones.",
            )
        if not columns or not len(next(iter(columns.values()))):
            raise ConfigurationError.at("data.root", file, " has no rows. Set it to a file with some.")
        parts.append(columns)
    names = parts[0] if only is None else [only]
    joined = {name: pyarrow.chunked_array([_cleaned(part[name], how) for part in parts]) for name in names}
    rows = tuple((file, len(next(iter(part.values())))) for file, part in zip(files, parts, strict=True))
    return TextColumns(joined, frozenset(are_text), rows)


def of_rows(rows: Sequence[Mapping[str, Any]], how: TableFormat) -> TextColumns:
    """Rows that are no file, each a value by column."""
    columns = dict[str, pyarrow.ChunkedArray]()
    for name in dict.fromkeys(name for row in rows for name in row):
        texts = [None if (value := row.get(name)) is None else str(value) for row in rows]
        columns[name] = pyarrow.chunked_array([_cleaned(pyarrow.array(texts, pyarrow.string()), how)])
    return TextColumns(columns, frozenset(), ((Path("the given rows"), len(rows)),))


def columns_of(columns: Iterable[str]) -> str:
    """The columns' names for a message, cut if there are many."""
    return printable(", ".join(columns)[:MOST_SHOWN])


def refuse_lacking(columns: Sequence[str], name: str, key: str, *, kind: str | None = None) -> None:
    """Raises ConfigurationError for a column that the files lack. ``kind``: what ``key.name`` was set to, if it was."""
    if name not in columns:
        form = "" if kind is None else f", as {setting('sale id', IGNORED)} if its name has spaces"
        raise ConfigurationError.at(
            key if kind is None else f"{key}.{name}",
            name if kind is None else kind,
            f": there is no such column.{nearest(name, columns)} The columns are {columns_of(columns)}. "
            f"Set it to one of them{form}, or data.root to a table whose first line names its columns.",
        )


def _cleaned(column: pyarrow.Array, how: TableFormat) -> pyarrow.Array:
    """The texts without spaces around them, numbers with a point; null for those that mean that there is no value."""
    empty = pyarrow.array([*MISSING, *how.missing])
    trimmed = compute.utf8_trim_whitespace(column)
    if how.decimal == ",":
        trimmed = compute.replace_substring_regex(trimmed, r"^(-?\d*),(\d+)$", r"\1.\2")
    return compute.if_else(compute.is_in(trimmed, empty), pyarrow.scalar(None, pyarrow.string()), trimmed)


def _parquet(file: Path, source: Any, how: TableFormat, only: str | None) -> tuple[dict[str, Any], set[str]]:
    try:
        table = parquet.read_table(source)
        _refuse_repeated(file, table.column_names)
        if only is not None:
            refuse_lacking(table.column_names, only, "data.target")
            table = table.select([only])
        values = {field.name: table[field.name].combine_chunks() for field in table.schema}
        kinds = {name: _type(column) for name, column in values.items()}
        texts = {name for name, kind in kinds.items() if kind in (pyarrow.string(), pyarrow.large_string())}
        if (nested := next((name for name, kind in kinds.items() if pyarrow.types.is_nested(kind)), None)) is not None:
            raise ConfigurationError.at(
                "data.root", file, f": the column {nested} holds {values[nested].type}, not single values. Remove it."
            )
        return {name: column.cast(pyarrow.string()) for name, column in values.items()}, texts
    except pyarrow.ArrowException as error:
        raise _unreadable(file, error) from None


def _type(column: pyarrow.Array) -> pyarrow.DataType:
    return getattr(column.type, "value_type", column.type) if "dictionary" in str(column.type) else column.type


def _csv(file: Path, source: Any, how: TableFormat, only: str | None) -> tuple[dict[str, Any], set[str]]:
    if file.suffix == ".gz":
        source = io.BytesIO(pyarrow.CompressedInputStream(source, "gzip").read())
    names, delimiter = _header(file, source.read(HEAD), how.delimiter)
    source.seek(0)
    _refuse_repeated(file, names)
    wrong = list[str]()

    def refuse(row: Any) -> str:
        where = f"row {row.number - 1:,}" if row.number else "a row"
        wrong.append(f"{where} has {row.actual_columns} values for {row.expected_columns} columns: {row.text[:40]}")
        return "error"

    if only is not None:
        refuse_lacking(names, only, "data.target")
    try:
        table = arrow.read_csv(
            source,
            read_options=arrow.ReadOptions(use_threads=False, column_names=names, skip_rows=1),
            parse_options=arrow.ParseOptions(delimiter=delimiter, newlines_in_values=True, invalid_row_handler=refuse),
            convert_options=arrow.ConvertOptions(
                column_types=dict.fromkeys(names, pyarrow.string()), include_columns=[only] if only else names
            ),
        )
    except pyarrow.ArrowException as error:
        raise _unreadable(file, wrong[0] if wrong else error, delimiter) from None
    return {name: table[name].combine_chunks() for name in table.column_names}, set()


def _header(file: Path, head: bytes, delimiter: str) -> tuple[list[str], str]:
    """The columns' names in the first line, and the delimiter between them. Raises ConfigurationError."""
    try:
        line = next(iter(head.decode("utf-8-sig", errors="strict" if len(head) < HEAD else "ignore").splitlines()), "")
    except UnicodeDecodeError as error:
        raise _unreadable(file, error) from None
    if "\0" in line:
        raise _unreadable(file, "it is not a text")
    if not line.strip():
        raise ConfigurationError.at("data.root", file, " is empty. Set it to a file with rows.")
    usual = ("\t",) if ".tsv" in file.suffixes else DELIMITERS
    candidates = usual if delimiter == "auto" else (delimiter,)
    rows = {character: next(csv.reader([line], delimiter=character)) for character in candidates}
    used = max(rows, key=lambda character: len(rows[character]))
    names = [name.strip() or f"column_{number}" for number, name in enumerate(rows[used], 1)]
    if len(names) == 1 and (other := next((character for character in (*DELIMITERS, " ") if character in line), None)):
        raise ConfigurationError.at(
            "data.delimiter",
            delimiter,
            f": {printable(file.name)} has a single column, {printable(line[:40])}. Set it to what separates the "
            f"columns, such as data.delimiter='{other}'.".replace("\t", "\\t"),
        )
    return names, used


def _refuse_repeated(file: Path, names: Sequence[str]) -> None:
    if repeated := next((name for number, name in enumerate(names) if name in names[:number]), None):
        raise ConfigurationError.at(
            "data.root", file, f" has two columns called {printable(repeated)}. Rename one of them."
        )


def _unreadable(file: Path, why: object, delimiter: str | None = None) -> ConfigurationError:
    if isinstance(why, UnicodeDecodeError) or "UTF8" in str(why):
        name = shlex.quote(printable(file.name))
        return ConfigurationError.at(
            "data.root",
            file,
            f" cannot be read: it is not UTF-8. Save it as CSV UTF-8, or convert it: iconv -f cp1252 -t utf-8 {name} > "
            "utf8.csv",
        )
    also = "" if delimiter is None else ", or data.delimiter if columns are not separated by " + repr(delimiter)
    reason = printable(" ".join(str(why).split()))
    return ConfigurationError.at("data.root", file, f" cannot be read: {reason}. Correct the file (UTF-8){also}.")
