"""data=parquet: Parquet files as on the Hugging Face hub: images as {bytes, path}, or text; read by row groups.

Needs pyarrow. Source: https://huggingface.co/docs/hub/datasets-image.
"""

import importlib.util
from array import array
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from manyheads.runner.data.data_option import Data, DataOption, ImageFiles, Samples, TokenBlocks
from manyheads.runner.data.links import boundary, refuse_leaving
from manyheads.runner.data.shard_names import chosen
from manyheads.runner.data.tokenizing import Bytes, blocks_of_texts, vocabulary
from manyheads.runner.errors import ConfigurationError
from manyheads.runner.option.rules import TEXT, whole

if TYPE_CHECKING:
    from manyheads.runner.data.parquet_rows import Rows

SPLITS = ("train", "val", "test")


class ParquetOption(DataOption):
    """Declares which files train, validate and test; they must exist."""

    imports = ("manyheads.runner.data.rank.photos",)
    rules: ClassVar = {
        **{f"{split}_shards": TEXT for split in SPLITS},
        "cache_mb": whole(1),
        "block_size": whole(1),
    }
    root: str

    def unavailable(self) -> str | None:
        if importlib.util.find_spec("pyarrow"):
            return None
        return "the package pyarrow is not installed: pip install 'manyheads[parquet]'"

    def check_keys(self) -> None:
        super().check_keys()
        if self.unavailable() is None:
            for split in SPLITS:
                needed = split == "train" or (split == "val" and self.partition is None)
                shards(Path(self.root), split, self.section[f"{split}_shards"], may_lack=not needed)


class Parquet(Data):
    """Rows of the Parquet files below ``root``: images with classes, or text.

    ``input_column``, ``label_column``: names, or "auto"; ``cache_mb``: megabytes of row groups that each process keeps;
    ``tokenizer``: an object with ``encode(text)`` and ``vocab_size``, None for bytes.
    """

    mean = (0.485, 0.456, 0.406)
    std = (0.229, 0.224, 0.225)

    def __init__(
        self,
        *,
        root: str,
        train_shards: str,
        val_shards: str,
        test_shards: str,
        input_column: str,
        label_column: str,
        num_classes: int | None,
        cache_mb: int,
        image_size: int,
        train_image_size: int | None,
        val_resize: int | None,
        tokenizer: Any,
        block_size: int,
    ):
        self.root, self.cache_bytes = Path(root), cache_mb * 10**6
        self.patterns = dict(zip(SPLITS, (train_shards, val_shards, test_shards), strict=True))
        self.columns = {"input": input_column, "label": label_column}
        self.image_size, self.train_size, self.resize = image_size, train_image_size, val_resize
        self.tokenizer = Bytes() if tokenizer is None else tokenizer
        self.block_size, self._num_classes = block_size, num_classes

    @cached_property
    def train(self) -> "Rows":
        """The training rows, opened on first use."""
        return self._rows("train")

    @property
    def classes(self) -> list[str] | None:
        """The names of the classes, if the files have them as the hub writes them."""
        return self.train.class_names

    @property
    def num_classes(self) -> Any:
        if not self.train.is_image:
            return vocabulary(self.tokenizer)
        return self._num_classes or (len(self.classes) if self.classes else int(self.train.targets.max()) + 1)

    @property
    def classes_in_words(self) -> str:
        if self.train.is_image:
            return super().classes_in_words
        return f"{self.block_size} tokens each, of {self.num_classes}"

    def split(self, *, train: bool) -> Samples:
        return self._samples("train" if train else "val")

    def test(self) -> Samples | None:
        return self._samples("test") if shards(self.root, "test", self.patterns["test"], may_lack=True) else None

    def _rows(self, split: str) -> "Rows":
        from manyheads.runner.data.parquet_rows import Rows  # needs the package

        files = shards(self.root, split, self.patterns[split])
        return Rows(self.root, files, self.columns, cache_bytes=self.cache_bytes)

    def _samples(self, split: str) -> Samples:
        rows = self.train if split == "train" else self._rows(split)
        if rows.is_image:
            return ImageFiles(
                rows,
                array("q", rows.targets),
                self.image_size,
                split == "train",
                self.classes,
                train_size=self.train_size,
                resize=self.resize,
                within=boundary(self.root),
            )
        return self._text(rows, split)

    def _text(self, rows: "Rows", split: str) -> TokenBlocks:
        stats = [(str(path.absolute()), path.stat()) for path in rows.paths]
        states = [(name, each.st_size, each.st_mtime_ns, each.st_ctime_ns) for name, each in stats]
        about, key = ["parquet", rows.input, states], "data.block_size"
        return blocks_of_texts(rows.texts(), self.tokenizer, self.block_size, about=about, of=split, key=key)


def shards(root: Path, split: str, pattern: str, *, may_lack: bool = False) -> list[Path]:
    """The files of a split, by their names below ``root``. Raises ConfigurationError."""
    names = sorted(path.relative_to(root).as_posix() for path in root.rglob("*.parquet"))
    if not names:
        raise ConfigurationError.at(
            "data.root", root, ": no file below it ends in .parquet. Set it to the folder of the files."
        )
    found = [root / names[each] for each in chosen(split, pattern, names, may_lack=may_lack)]
    for path in found:
        refuse_leaving(path, boundary(root))
    return found
