"""The samples of data=table: rows of the files, encoded by what the training rows say."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import numpy as np

from manyheads.runner.data.data_option import NamedSplits
from manyheads.runner.data.partition import ALL, Partition
from manyheads.runner.data.samples import TableArrays
from manyheads.runner.data.table.encoding import Encoding, TargetColumn, fitted, stored_encoding
from manyheads.runner.data.table.facts import facts_of
from manyheads.runner.data.table.files import TableFormat, TextColumns, columns_of, files_of, read, refuse_lacking
from manyheads.runner.data.table.kinds import (
    DECIMAL_COMMA,
    have_decimal_comma,
    is_whole,
    kind_of,
    numbers_in,
    setting,
)
from manyheads.runner.data.table.option import CATEGORY, DATE, IGNORED, NUMBER
from manyheads.runner.data.table.rows import DRAWN, validating
from manyheads.runner.errors import ConfigurationError, printable

MOST_CLASSES = 10  # of a target of whole numbers, with more of which it is a number


@dataclass(kw_only=True, eq=False)
class Table(NamedSplits):
    """Rows of ``root``, whose column ``target`` is predicted from all others but ``group`` and those that are ignored.

    ``columns``: kinds by name, for those whose kind is not to be inferred. ``encoding``: the model.json of the run
    whose encoding is used, None to fit it to the training rows. The other arguments are keys of conf/data/table.yaml.
    """

    root: str | list[str]
    target: str
    columns: Mapping[str, str] = field(default_factory=dict)
    group: str | None = None
    time: str | None = None
    missing: list[str] = field(default_factory=list)
    missing_target: str = "error"
    delimiter: str = "auto"
    decimal: str = "."
    encoding: str | None = None
    val_fraction: float | None = None
    folds: int | None = None
    fold: int | None = None
    split_seed: int = 0

    @property
    def num_classes(self) -> int | None:
        classes = self.fitted.target.classes
        return None if classes is None else len(classes)

    @property
    def num_inputs(self) -> int:  # type: ignore[override]
        """The number of a row's inputs."""
        return self.fitted.width

    @property
    def categories(self) -> tuple[int, ...]:  # type: ignore[override]
        """How many codes each of the last inputs has, which are positions in a list of categories."""
        return self.fitted.sizes

    @property
    def scale(self) -> tuple[float, float] | None:  # type: ignore[override]
        """Mean and standard deviation of a target that is a number."""
        target = self.fitted.target
        return (target.mean, target.std) if target.classes is None else None

    def samples(self, split: str) -> TableArrays:
        encoding = self.fitted  # what nothing can be learned from is said before how it is divided
        if split == "train" or (split == "val" and self.partition is not None):
            return _arrays(encoding, self.rows, self.masks[0 if split == "train" else 1])
        if split == "test" and self.partition is not None and "val" in self.files:
            split = "val"
        if split not in self.files:
            raise ConfigurationError.at(
                "trainer.test",
                True,
                ": there is no file with test in its name. Put the rows for the test into one, and set data.root to "
                "the folder of both.",
            )
        return _arrays(encoding, self.of_split(split))

    # -- the rows ------------------------------------------------------------------------------------

    @cached_property
    def files(self) -> dict[str, list[Path]]:
        """The files of each split."""
        return files_of(self.root)

    @property
    def reading(self) -> TableFormat:
        """How the files are read."""
        return TableFormat(self.delimiter, self.decimal, tuple(self.missing))

    @property
    def column_names(self) -> str:
        """The columns of the first file, for a message."""
        return columns_of(read(self.files["train"][:1], self.reading).columns)

    @property
    def target_kind(self) -> str:
        """Whether the target is a number or a category; only its column is read."""
        return target_kind(read(self.files["train"], self.reading, only=self.target), self.target, self.columns)

    @cached_property
    def rows(self) -> TextColumns:
        rows = read(self.files["train"], self.reading)
        for name, kind in self.columns.items():
            refuse_lacking([*rows.columns], name, "data.columns", kind=kind)
        for key, column in (("data.group", self.group), ("data.time", self.time)):
            if column is not None:
                refuse_lacking([*rows.columns], column, key)
        return self._with_target(rows)

    def of_split(self, split: str) -> TextColumns:
        return self._with_target(read(self.files[split], self.reading))

    def _with_target(self, texts: TextColumns) -> TextColumns:
        """The rows, all of which have a target. Raises ConfigurationError for those that have none."""
        refuse_lacking([*texts.columns], self.target, "data.target")
        column = texts.columns[self.target]
        if not column.null_count:
            return texts
        if self.missing_target == "skip" and column.null_count < len(column):
            return texts.filtered(column.is_valid().to_numpy())
        first = column.is_null().to_pylist().index(True)
        raise ConfigurationError.at(
            "data.missing_target",
            self.missing_target,
            f": {column.null_count:,} of {len(column):,} rows have no {printable(self.target)}, the first of them "
            f"{texts.row(first)}. Set data.missing_target=skip to leave them out, or data.target to another column.",
        )

    @cached_property
    def partition(self) -> Partition | None:
        """How rows to validate on are taken from the training files; None if they have files of their own."""
        partition = Partition.of(self.val_fraction, folds=self.folds, fold=self.fold, seed=self.split_seed)
        return partition or (None if "val" in self.files else Partition(DRAWN, None, None, self.split_seed))

    @cached_property
    def masks(self) -> tuple[np.ndarray, np.ndarray]:
        """The rows of the training files to train on, and to validate on."""
        rows = self.rows
        if self.val_fraction == ALL or self.partition is None:
            # With ALL, an evaluation builds training samples too, and takes none.
            return np.ones(len(rows), bool), np.full(len(rows), self.val_fraction == ALL)
        groups = times = None
        if self.group is not None:
            column = rows.columns[self.group].fill_null("")
            groups = column.combine_chunks().dictionary_encode().indices.to_numpy()
        if self.time is not None:
            times = numbers_in(rows.columns[self.time], self.kinds[self.time], name=self.time, where=rows.row)
        return validating(self.partition, len(rows), groups=groups, times=times)

    # -- what they say -------------------------------------------------------------------------------

    @cached_property
    def kinds(self) -> dict[str, str]:
        """The kinds of all columns but the target, as set or inferred. Raises ConfigurationError."""
        names = [name for name in self.rows.columns if name != self.target]
        kinds = {name: self.columns.get(name) or self._inferred(name) for name in names}
        if self.group is not None:
            kinds[self.group] = IGNORED
        if self.time is not None and kinds[self.time].split()[0] not in (DATE, NUMBER):
            raise ConfigurationError.at(
                "data.time",
                self.time,
                f" is {_taken_as(kinds[self.time])}. Set it to a column of dates or numbers, or its format: "
                f"{setting(self.time, 'date %d.%m.%Y')}.",
            )
        return kinds

    def _inferred(self, name: str) -> str:
        rows = self.rows
        return kind_of(rows.columns[name], name=name, is_text=name in rows.are_text, where=rows.row)

    @cached_property
    def fitted(self) -> Encoding:
        """How rows become inputs. Raises ConfigurationError."""
        if self.encoding is not None:
            return stored_encoding(self.encoding, self.target)
        kinds = {name: kind for name, kind in self.kinds.items() if kind != IGNORED}
        if not kinds:
            raise ConfigurationError.at(
                "data.target", self.target, ": no other column is left to predict it from. Set data.columns."
            )
        return fitted(self.rows, kinds, self._target(), self.masks[0])

    def _target(self) -> TargetColumn:
        """The target, by the training rows. Raises ConfigurationError for one from which nothing can be learned."""
        rows, column = self.rows, self.rows.columns[self.target]
        if len(distinct := column.unique()) < 2:
            raise ConfigurationError.at(
                "data.target",
                self.target,
                f" is {printable(distinct[0].as_py())} in all {len(rows):,} rows, so there is nothing to learn. Set it "
                "to another column, or data.root to files with several values of it.",
            )
        if target_kind(rows, self.target, self.columns) == NUMBER:
            values = numbers_in(column, NUMBER, name=self.target, where=rows.row)[self.masks[0]]
            return TargetColumn(self.target, None, float(values.mean()), float(values.std()) or 1.0)
        names = distinct.to_pylist()
        number = setting(self.target, NUMBER)
        if len(names) > len(rows) / 2 and len(rows) > 2 * MOST_CLASSES:
            raise ConfigurationError.at(
                "data.target",
                self.target,
                f" has {len(names):,} different values in {len(rows):,} rows, too many to be classes. Set "
                f"{DECIMAL_COMMA if have_decimal_comma(distinct) else f'it to another column, or {number}'}.",
            )
        return TargetColumn(self.target, (*sorted(names, key=float if is_whole(distinct) else None),))

    @cached_property
    def facts(self) -> dict[str, str]:  # type: ignore[override]
        """What is known of the columns, for the run's header."""
        return facts_of(self)


def _taken_as(kind: str) -> str:
    """Why rows have no order by a column of this kind."""
    return "ignored" if kind == IGNORED else f"a {kind}, whose order is unknown"


def _arrays(encoding: Encoding, texts: TextColumns, chosen: np.ndarray | None = None) -> TableArrays:
    """The rows, or those for which ``chosen``, (N,) bool, is true, as samples."""
    features, targets = encoding.inputs(encoding.raw(texts)), encoding.target.values(texts)
    rows = slice(None) if chosen is None else chosen
    return TableArrays(features[rows], targets[rows], encoding.target.classes, encoding.to_json())


def target_kind(rows: TextColumns, target: str, columns: Mapping[str, str]) -> str:
    """Whether the target is a number or a category, as set or inferred; few whole numbers are classes."""
    column = rows.columns[target]
    if (kind := columns.get(target)) in (NUMBER, CATEGORY):
        return kind
    kind = kind_of(column, name=target, is_text=target in rows.are_text, where=rows.row)
    few = kind == NUMBER and is_whole(column) and len(column.unique()) <= min(MOST_CLASSES, len(column) // 2)
    return CATEGORY if few or kind != NUMBER else NUMBER
