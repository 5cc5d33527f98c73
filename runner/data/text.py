"""data=stdlib_text, text: texts as blocks of tokens, to predict each token from those before it."""

import hashlib
import sys
import sysconfig
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

from manyheads.runner.data.data_option import DataOption, NamedSplits
from manyheads.runner.data.left_out import NOTHING, LeftOut
from manyheads.runner.data.links import boundary, nearest_path
from manyheads.runner.data.samples import TokenBlocks
from manyheads.runner.data.tokenizing import Bytes, Files, tokens, vocabulary
from manyheads.runner.errors import ConfigurationError
from manyheads.runner.option.rules import TEXT, number, whole

SPLITS = ("train", "val", "test")
# Packages of the standard library that some distributions omit.
LEFT_OUT = {"antigravity", "distutils", "ensurepip", "idlelib", "lib2to3", "test", "this", "tkinter", "turtledemo"}


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


class Text(NamedSplits):
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

    def samples(self, split: str) -> TokenBlocks:
        is_single = len(self.files) == 1
        files = self.files if is_single else split_of(self.files, split, **self.fractions)
        row, digest = tokens(files, self.tokenizer, self.within)
        row = row[slice(*_bounds(len(row), split, **self.fractions)) if is_single else slice(None)][: self.max_tokens]
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


def standard_library() -> Files:
    """The standard library of this Python, without tests and generated modules."""
    root = Path(sysconfig.get_path("stdlib"))
    wanted = {name for name in sys.stdlib_module_names if not name.startswith("_sysconfigdata")} - LEFT_OUT
    modules: dict[str, Path] = {}
    for name in sorted(wanted):
        if (module := root / f"{name}.py").is_file():
            modules[module.name] = module
        for path in sorted((root / name).rglob("*.py")):
            below = path.relative_to(root)
            if not {"test", "tests", "__pycache__"} & {*below.parts}:
                modules[below.as_posix()] = path
    return modules


def below(root: Path, pattern: str) -> Files:
    """The files that match below ``root``, or ``root`` itself. Raises ConfigurationError if there are none."""
    if root.is_file():
        return {root.name: root}
    if not root.is_dir():
        raise ConfigurationError.at(
            "data.root", root, f": there is no such file or folder.{nearest_path(root)} Set it to your text."
        )
    try:
        files = {p.relative_to(root).as_posix(): p for p in sorted(root.glob(pattern)) if p.is_file()}
    except (ValueError, NotImplementedError) as error:  # the latter for an absolute path
        raise ConfigurationError.at(
            "data.pattern", pattern, f": {error}. Set it to a pattern of names below data.root, such as **/*.md."
        ) from None
    if not files:
        raise ConfigurationError.at(
            "data.root",
            root,
            f": no file there matches data.pattern={pattern}. Set data.root to a text file or a "
            "folder of them, and data.pattern to a pattern of their names, such as **/*.md.",
        )
    return files


def beside_splits(files: Files) -> LeftOut:
    """The files outside the folders of splits, which therefore are not taken as such, if there are some of both."""
    tops = {name.partition("/")[0] for name in files}
    return LeftOut.of(n for n in files if n.partition("/")[0] not in SPLITS) if {"train", "val"} <= tops else NOTHING


def split_of(files: Files, split: str, *, val_fraction: float, test_fraction: float) -> Files:
    """The files of one split: those in the folder of its name if all are in such folders, else chosen by a hash."""
    tops = {name.partition("/")[0] for name in files}
    if {"train", "val"} <= tops <= {*SPLITS}:
        return {name: path for name, path in files.items() if name.startswith(f"{split}/")}
    bounds = {"val": (0.0, val_fraction), "test": (val_fraction, val_fraction + test_fraction)}
    low, high = bounds.get(split, (val_fraction + test_fraction, 1.0))
    return {name: path for name, path in files.items() if low <= _place(name) < high}


def _place(name: str) -> float:
    """A number from 0 to 1, from the file's name alone."""
    return int.from_bytes(hashlib.sha256(name.encode(errors="surrogateescape")).digest()[:4], "big") / 2**32
