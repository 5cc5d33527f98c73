"""data=stdlib_text, text: texts as blocks of tokens, to predict each token from those before it."""

from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

from manyheads.runner.data.corpus import Files, below, beside_splits, split_of, standard_library
from manyheads.runner.data.data_option import Data, DataOption
from manyheads.runner.data.left_out import LeftOut
from manyheads.runner.data.links import boundary
from manyheads.runner.data.samples import TokenBlocks
from manyheads.runner.data.tokenizing import Bytes, tokens, vocabulary
from manyheads.runner.errors import ConfigurationError
from manyheads.runner.option.rules import TEXT, number, whole


class TextOption(DataOption):
    """Declares text files below ``root``."""

    rules: ClassVar = {
        "pattern": TEXT,
        "block_size": whole(1),
        "max_tokens": whole(2),
        "val_fraction": number(above=0, below=1),
        "test_fraction": number(at_least=0, below=1),
    }
    root: str
    pattern: str = ""  # for texts that are found in another way
    val_fraction: float
    test_fraction: float

    def check_keys(self) -> None:
        super().check_keys()
        if self.val_fraction + self.test_fraction >= 1:
            raise ConfigurationError.at(
                "data.val_fraction",
                self.val_fraction,
                f" and data.test_fraction={self.test_fraction} leave nothing to train on. Lower one of them.",
            )
        files = self.files()
        if self.pattern and (root := Path(self.root)).is_dir():
            LeftOut.below(root, files).warn("file", f" below {root}, which data.pattern={self.pattern} does not match.")
            so = "all files are divided by a hash of their names, not by the folders train/ and val/, because of"
            beside_splits(files).warn("file", " beside them.", before=so)

    def files(self) -> Files:
        """The files of the text. Raises ConfigurationError."""
        return below(Path(self.root), self.pattern)

    def sources(self) -> dict[str, Path]:
        with suppress(ConfigurationError):  # check_keys reports what is missing
            return dict(self.files())
        return {}


class StdlibTextOption(TextOption):
    """Declares the standard library of this Python."""

    def files(self) -> Files:
        return standard_library()


class Text(Data):
    """Files below ``root`` in blocks of ``block_size`` tokens; a block's labels are the next tokens.

    ``tokenizer``: an object with ``encode(text)`` and ``vocab_size``, as Hugging Face's; None for bytes. Files are
    split by a hash of their names, a single file by position: validation and test samples are at its end.
    ``max_tokens``: at most this many of each split.
    """

    def __init__(
        self,
        *,
        root: str,
        pattern: str,
        block_size: int,
        tokenizer: Any,
        val_fraction: float,
        test_fraction: float,
        max_tokens: int | None,
    ):
        self.root, self.pattern, self.within = Path(root), pattern, boundary(root) if root else None
        self.block_size, self.max_tokens = block_size, max_tokens
        self.fractions = {"val_fraction": val_fraction, "test_fraction": test_fraction}
        self.tokenizer = Bytes() if tokenizer is None else tokenizer
        self.num_classes = vocabulary(self.tokenizer)

    @cached_property
    def files(self) -> Files:
        """The files of the text."""
        return below(self.root, self.pattern)

    @property
    def classes_in_words(self) -> str:
        return f"{self.block_size} tokens each, of {self.num_classes}"

    def split(self, *, train: bool) -> TokenBlocks:
        return self._blocks("train" if train else "val")

    def test(self) -> TokenBlocks:
        return self._blocks("test")

    def _blocks(self, split: str) -> TokenBlocks:
        if len(self.files) == 1:
            row, digest = tokens(self.files, self.tokenizer, self.within)
            row = row[slice(*_bounds(len(row), split, **self.fractions))]
        else:
            row, digest = tokens(split_of(self.files, split, **self.fractions), self.tokenizer, self.within)
        row = row[: self.max_tokens]
        if len(row) <= self.block_size:
            raise ConfigurationError.at(
                "data.block_size",
                self.block_size,
                f": the {split} split has {len(row)} tokens, but a block needs one token "
                "more than its size. Lower it, or give more text.",
            )
        return TokenBlocks(row, self.block_size, digest)


class StdlibText(Text):
    """Python's own standard library."""

    def __init__(
        self,
        *,
        block_size: int,
        tokenizer: Any,
        val_fraction: float,
        test_fraction: float,
        max_tokens: int | None,
    ):
        super().__init__(
            root="",
            pattern="",
            block_size=block_size,
            tokenizer=tokenizer,
            val_fraction=val_fraction,
            test_fraction=test_fraction,
            max_tokens=max_tokens,
        )

    @cached_property
    def files(self) -> Files:
        return standard_library()


def _bounds(length: int, split: str, *, val_fraction: float, test_fraction: float) -> tuple[int, int]:
    """Where a split begins and ends in a single file: training, validation, test."""
    ends = [round(length * part) for part in (0, 1 - val_fraction - test_fraction, 1 - test_fraction, 1)]
    position = ("train", "val", "test").index(split)
    return ends[position], ends[position + 1]
