"""Rows of a Hugging Face data set as they come, as samples: images, texts with classes, or blocks of tokens."""

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import datasets
import torch
from torch import Tensor
from torch.utils.data import IterableDataset

from manyheads.runner.data.links import boundary
from manyheads.runner.data.rank.hf import padded
from manyheads.runner.data.rank.photos import Photos
from manyheads.runner.data.tokenizing import END, Bytes, tokens_of, vocabulary
from manyheads.runner.errors import ConfigurationError
from manyheads.runner.run.checkpoint_places import StateDict

if TYPE_CHECKING:
    from manyheads.runner.data.hf_contents import HfContents


class Rows(IterableDataset[Any]):
    """A sample for each of the ``rows``, a ``datasets.IterableDataset``, which keeps its position and divides itself.

    ``attributes``: of the data set of samples, such as its classes.
    """

    def __init__(self, rows: Any, sample: Callable[[Any], Any], **attributes: Any):
        self._rows, self._sample, self._attributes = rows, sample, attributes
        vars(self).update(attributes)

    @property
    def num_shards(self) -> int:
        """The number of files."""
        return int(self._rows.num_shards)

    def shard(self, num_shards: int, index: int) -> "Rows":
        """One of ``num_shards`` parts, each of which has some files."""
        return type(self)(self._rows.shard(num_shards, index), self._sample, **self._attributes)

    def __iter__(self) -> Iterator[Any]:
        return map(self._sample, self._rows)

    def set_epoch(self, epoch: int) -> None:
        self._rows.set_epoch(epoch)

    def state_dict(self) -> StateDict:
        """Where the reading is."""
        return {"rows": self._rows.state_dict()}

    def load_state_dict(self, state: StateDict) -> None:
        """Continue where the reading was."""
        self._rows.load_state_dict(state["rows"])


class RowBlocks(Rows):
    """Tokens of all rows, one after another, in blocks of ``size``, each with the next tokens as its labels."""

    size: int
    _left: Sequence[int] = ()
    _at = 0  # of the first of them that is due

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        rows = iter(self._rows)
        while True:
            while len(self._left) - self._at > self.size:
                block = torch.tensor(self._left[self._at : self._at + self.size + 1])
                self._at += self.size
                yield block[:-1], block[1:]
            if not (row := next(rows, None)):
                return
            self._left, self._at = [*self._left[self._at :], *self._sample(row)], 0

    def state_dict(self) -> StateDict:
        """Where the reading is."""
        return {**super().state_dict(), "left": [*self._left[self._at :]]}

    def load_state_dict(self, state: StateDict) -> None:
        """Continue where the reading was."""
        super().load_state_dict(state)
        self._left, self._at = state["left"], 0


def samples_of(contents: "HfContents", rows: Any, *, train: bool) -> Rows:
    """The samples of a split."""
    rows = rows.select_columns([name for name in (contents.input, contents.target) if name is not None])
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
