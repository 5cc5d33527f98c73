"""How rows become inputs, and what outputs mean, by what the training rows say: plain values, for JSON."""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
from pyarrow import compute

from manyheads.runner.data.table.files import TextColumns, columns_of
from manyheads.runner.data.table.kinds import numbers_in, setting
from manyheads.runner.data.table.option import CATEGORY, IGNORED, NUMBER
from manyheads.runner.errors import ConfigurationError, printable
from manyheads.runner.run.data_files import read_json
from manyheads.runner.wording import counted

FEWEST = 2  # rows that a category needs for an embedding: of a value that occurs once nothing can be learned
MOST_CATEGORIES = 2**20
SHOWN = 3
NOTHING = ""  # the category of rows without a value, if it is one


@dataclass(frozen=True)
class NumberColumn:
    """A column of numbers. ``kind``: number, boolean or date; ``marks``: whether an input says that a value is missing.

    ``mean``, ``std``: of the training rows' values; a missing value becomes the mean.
    """

    name: str
    kind: str
    mean: float
    std: float
    marks: bool

    @classmethod
    def fitted(cls, name: str, kind: str, values: np.ndarray) -> "NumberColumn":
        """The column, by the values in the training rows, NaN where there is none. Raises ConfigurationError."""
        there = values[~np.isnan(values)]
        if not len(there):
            raise ConfigurationError(
                f"the column {printable(name)} has no value in the {len(values):,} training rows. Set "
                f"{setting(name, IGNORED)}.",
                key=f"data.columns.{name}",
            )
        return cls(name, kind, float(there.mean()), float(there.std()) or 1.0, len(there) < len(values))


@dataclass(frozen=True)
class CategoryColumn:
    """A column of categories: input 0 for unknown ones, else the position in ``values``, from 1."""

    name: str
    values: tuple[str, ...]

    @classmethod
    def fitted(cls, name: str, column: pyarrow.ChunkedArray) -> "CategoryColumn":
        """The column, by the training rows. Raises ConfigurationError for too many categories."""
        counts = column.fill_null(NOTHING).value_counts()
        values = sorted(
            value
            for value, count in zip(*(counts.field(i).to_pylist() for i in (0, 1)), strict=True)
            if count >= FEWEST
        )
        if len(values) > MOST_CATEGORIES:
            raise ConfigurationError(
                f"the column {printable(name)} has {len(values):,} categories, more than {MOST_CATEGORIES:,}. Set "
                f"{setting(name, IGNORED)}.",
                key=f"data.columns.{name}",
            )
        return cls(name, (*values,))

    def codes(self, column: pyarrow.ChunkedArray) -> np.ndarray:
        """The inputs of these values, (N,) int64."""
        numbers = compute.index_in(column.fill_null(NOTHING), pyarrow.array(self.values, pyarrow.string()))
        return compute.add(compute.fill_null(numbers, -1), 1).to_numpy().astype("int64")


@dataclass(frozen=True)
class TargetColumn:
    """The column to predict: ``classes``, or a number, standardized by ``mean`` and ``std`` for training."""

    name: str
    classes: tuple[str, ...] | None = None
    mean: float = 0.0
    std: float = 1.0

    def values(self, texts: TextColumns) -> np.ndarray:
        """Class numbers, (N,) int64, or numbers, (N,) float64. Raises ConfigurationError for others."""
        column = texts.columns[self.name]
        if self.classes is None:
            return numbers_in(column, NUMBER, name=self.name, where=texts.row)
        numbers = compute.fill_null(compute.index_in(column, pyarrow.array(self.classes)), -1)
        if (row := compute.index(numbers, -1).as_py()) >= 0:
            raise ConfigurationError(
                f"{texts.row(row)}: {printable(self.name)}={printable(column[row].as_py())} is not a class of the "
                f"training rows, which are {listed(self.classes)}. Set data.root to files of the same classes.",
                key="data.root",
            )
        return numbers.to_numpy().astype("int64")


@dataclass(frozen=True)
class Encoding:
    """How a row becomes inputs.

    These are all ``numbers``, then a mark, 0 or 1, for each that ``marks``, then the codes of ``categories``.
    """

    numbers: tuple[NumberColumn, ...]
    categories: tuple[CategoryColumn, ...]
    target: TargetColumn

    @property
    def marked(self) -> list[int]:
        """The positions of the numbers whose missing values are marked."""
        return [number for number, column in enumerate(self.numbers) if column.marks]

    @property
    def width(self) -> int:
        """The number of a row's inputs."""
        return len(self.numbers) + len(self.marked) + len(self.categories)

    @property
    def sizes(self) -> tuple[int, ...]:
        """The number of codes of each category column, with the one for unknown values."""
        return tuple(len(column.values) + 1 for column in self.categories)

    @property
    def names(self) -> list[str]:
        """The columns that a file must have."""
        return [*(column.name for column in self.numbers), *(column.name for column in self.categories)]

    def raw(self, texts: TextColumns) -> np.ndarray:
        """The numbers as they stand in the files, NaN where there is none, and the codes; (N, columns) float64.

        Raises ConfigurationError for a missing column, and for values that do not fit their column.
        """
        for name in self.names:
            if name not in texts.columns:
                raise ConfigurationError(
                    f"the column {printable(name)}, which the model needs, is missing in "
                    f"{printable(str(texts.files[0][0]))}. The columns are {columns_of(texts.columns)}. Add it, "
                    "empty if it is unknown.",
                    key="data.root",
                )
        values = [numbers_in(texts.columns[c.name], c.kind, name=c.name, where=texts.row) for c in self.numbers]
        codes = [column.codes(texts.columns[column.name]).astype("float64") for column in self.categories]
        return np.stack([*values, *codes], axis=1) if values or codes else np.zeros((len(texts), 0))

    def inputs(self, raw: np.ndarray) -> np.ndarray:
        """The model's inputs for what ``raw`` returned, (N, width) float32."""
        count = len(self.numbers)
        mean, std = (np.array([getattr(column, name) for column in self.numbers]) for name in ("mean", "std"))
        missing = np.isnan(raw[:, :count])
        numbers = np.where(missing, 0.0, (raw[:, :count] - mean) / std)
        return np.concatenate([numbers, missing[:, self.marked], raw[:, count:]], axis=1).astype(np.float32)

    def unknown(self, texts: TextColumns) -> list[str]:
        """For each column with values that have no code, a sentence."""
        sentences = []
        for column in self.categories:
            values = texts.columns[column.name]
            others = values.filter(column.codes(values) == 0).drop_null()
            if count := len(others):
                names = listed(sorted(others.unique().to_pylist()), SHOWN)
                sentences.append(f"{printable(column.name)}: {names} ({counted(count, 'row')})")
        return sentences

    def to_json(self) -> dict[str, Any]:
        return json.loads(json.dumps(asdict(self)))  # lists, as they are read again


def encoding_of(content: Any) -> Encoding | None:
    """The encoding that JSON holds; None if it is not one."""
    try:
        numbers = tuple(NumberColumn(**column) for column in content["numbers"])
        categories = tuple(CategoryColumn(c["name"], tuple(c["values"])) for c in content["categories"])
        classes = content["target"]["classes"]
        target = TargetColumn(**{**content["target"], "classes": None if classes is None else tuple(classes)})
    except (KeyError, TypeError):
        return None
    texts = [target.name, *(target.classes or ())]
    texts += [text for column in numbers for text in (column.name, column.kind)]
    texts += [text for column in categories for text in (column.name, *column.values)]
    scales = [(column.mean, column.std) for column in numbers] + [(target.mean, target.std)]
    is_right = all(isinstance(text, str) for text in texts) and all(
        isinstance(value, (int, float)) and math.isfinite(value) for value in chain.from_iterable(scales)
    )
    return Encoding(numbers, categories, target) if is_right and all(std for _, std in scales) else None


def stored_encoding(path: str, target: str) -> Encoding:
    """The encoding in a model.json. Raises ConfigurationError if it has none, or one of another target."""
    try:
        content = read_json(Path(path))
    except OSError:
        raise ConfigurationError.at(
            "data.encoding",
            path,
            ": there is no such file. It is the model.json of a run, by whose training rows columns are encoded; a "
            "text file's characters are always UTF-8. Set it to such a file, auto or null.",
        ) from None
    encoding = encoding_of(content.get("table"))
    if encoding is None:
        raise ConfigurationError.at(
            "data.encoding",
            path,
            " holds no encoding of a table. Set it to the model.json of a run on a table, or null.",
        )
    if encoding.target.name != target:
        raise ConfigurationError.at(
            "data.target", target, f": the run of {path} predicts {encoding.target.name}. Set it to that."
        )
    return encoding


def fitted(texts: TextColumns, kinds: Mapping[str, str], target: TargetColumn, is_training: np.ndarray) -> Encoding:
    """The encoding that the training rows say. ``kinds``: of the columns that are inputs.

    Raises ConfigurationError.
    """
    numbers, categories = list[NumberColumn](), list[CategoryColumn]()
    rows = pyarrow.array(is_training)
    for name, kind in kinds.items():
        if kind == CATEGORY:
            categories.append(CategoryColumn.fitted(name, texts.columns[name].filter(rows)))
        else:
            values = numbers_in(texts.columns[name], kind, name=name, where=texts.row)
            numbers.append(NumberColumn.fitted(name, kind, values[is_training]))
    return Encoding((*numbers,), (*categories,), target)


def listed(names: Sequence[str], most: int = 5) -> str:
    """Names as text, the first of them if there are many."""
    return printable(", ".join(names[:most])) + (f" and {len(names) - most:,} more" if len(names) > most else "")
