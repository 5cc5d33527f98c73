"""What the rows of a streamed Hugging Face data set become: images, texts with classes, or blocks of tokens."""

from typing import TYPE_CHECKING, Any

import datasets

from manyheads.runner.data.links import boundary
from manyheads.runner.data.rank.hf import padded
from manyheads.runner.data.rank.photos import Photos
from manyheads.runner.data.rank.streams.hf import RowBlocks, Rows
from manyheads.runner.data.tokenizing import END, Bytes, tokens_of, vocabulary
from manyheads.runner.errors import ConfigurationError

if TYPE_CHECKING:
    from manyheads.runner.data.hf_contents import HfContents


def samples_of(contents: "HfContents", rows: Any, *, train: bool) -> Rows:
    """The samples of a split."""
    names = [contents.input] + ([] if contents.target is None else [contents.target])
    rows = rows.select_columns(names)
    if contents.target is None:
        return _blocks(contents, rows)
    return _images(contents, rows, train=train) if contents.is_image else _texts(contents, rows)


def _blocks(contents: "HfContents", rows: Any) -> RowBlocks:
    tokenizer, column = contents.tokenizer, contents.input
    size, end = vocabulary(tokenizer), [END] * isinstance(tokenizer, Bytes)
    sample = lambda row: tokens_of(row[column] or "", tokenizer, size, "a row") + end  # noqa: E731
    return RowBlocks(rows, sample, size=contents.data.max_length)


def _texts(contents: "HfContents", rows: Any) -> Rows:
    tokenizer, column, most = contents.tokenizer, contents.input, contents.data.max_length
    size = vocabulary(tokenizer)

    def sample(row: Any) -> Any:
        numbers = tokens_of(row[column] or "", tokenizer, size, "a row")
        return padded(numbers, number_of(contents, row), tokenizer, most)

    return Rows(rows, sample, classes=contents.classes)


def _images(contents: "HfContents", rows: Any, *, train: bool) -> Rows:
    from manyheads.runner.data.hf_contents import DataFiles

    data, column, classes = contents.data, contents.input, contents.classes
    within = data.root and boundary(data.root)
    file = DataFiles([], column, data.root).file

    def photos(files: list[Any], targets: list[int]) -> Photos:
        return data.images(files, targets, train=train, classes=classes, within=within).read()  # type: ignore[return-value]

    def sample(row: Any) -> Any:
        return photos([file(row[column])], [number_of(contents, row)])[0]

    rows = rows.cast_column(column, datasets.Image(decode=False))
    return Rows(rows, sample, classes=classes, preprocess=photos([], []).preprocess)


def number_of(contents: "HfContents", row: Any) -> int:
    """The class number of a row. Raises ConfigurationError for a value that is not among the classes."""
    value, classes = row[contents.target], contents.classes
    assert classes is not None
    if isinstance(value, int) and isinstance(contents.train.features[contents.target], datasets.ClassLabel):
        return value
    if str(value) not in classes:
        raise ConfigurationError.at(
            "data.label_column", contents.target, f": a row has {value}, which is not among the classes."
        )
    return classes.index(str(value))
