"""data=parquet: Parquet files as on the Hugging Face hub: images as {bytes, path}, or text; read by row groups.

Needs pyarrow. Source: https://huggingface.co/docs/hub/datasets-image.
"""

from array import array
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from manyheads.runner.data.links import boundary
from manyheads.runner.data.samples import Samples
from manyheads.runner.data.sharded import ShardedOption, ShardedSamples
from manyheads.runner.data.shards.index import PARQUET
from manyheads.runner.option.locate import missing
from manyheads.runner.option.rules import whole

if TYPE_CHECKING:
    from manyheads.runner.data.parquet_rows import ParquetRows


class ParquetOption(ShardedOption):
    """Declares that the files must exist."""

    imports = ("manyheads.runner.data.rank.photos",)
    shards = PARQUET
    rules: ClassVar = {"cache_mb": whole(1), "block_size": whole(1)}

    def unavailable(self) -> str | None:
        return missing("pyarrow", extra="parquet") or super().unavailable()

    def check_keys(self) -> None:
        super().check_keys()
        if self.unavailable() is None:
            with self.folder() as folder, suppress(OSError):  # which the ranks report
                for name in self.read_names(folder):
                    folder.file(name)  # refuses a link that points outside


@dataclass(kw_only=True, eq=False)
class Parquet(ShardedSamples):
    """Rows of Parquet files.

    ``input_column``, ``label_column``: names, or "auto"; ``cache_mb``: megabytes of row groups that each process keeps.
    """

    shards = PARQUET
    input_column: str
    label_column: str
    cache_mb: int

    @cached_property
    def train(self) -> "ParquetRows":
        """The training rows, opened on first use."""
        return self._rows("train")

    @property
    def classes(self) -> list[str] | None:
        """The names of the classes, if the files have them as the hub writes them."""
        return self.train.class_names

    @property
    def is_text(self) -> bool:
        return not self.train.is_image

    def counted_classes(self) -> int | None:
        return len(self.classes) if self.classes else int(self.train.targets.max()) + 1

    def _rows(self, split: str) -> "ParquetRows":
        from manyheads.runner.data.parquet_rows import ParquetRows  # needs the package

        return ParquetRows(
            self.folder,
            self.names(split),
            {"input": self.input_column, "label": self.label_column},
            cache_bytes=self.cache_mb * 10**6,
            ahead=0 if isinstance(self.place, Path) else self.read_ahead,
        )

    def samples(self, split: str) -> Samples | None:
        if split == "test" and not self.names(split):
            return None
        rows = self.train if split == "train" else self._rows(split)
        if rows.is_image:
            targets, within = array("q", rows.targets), boundary(self.place) if isinstance(self.place, Path) else None
            return self.images(rows, targets, train=split == "train", classes=self.classes, within=within)
        about = ["parquet", rows.input, self.folder.states(self.names(split))]
        return self.blocks(rows.texts(), self.block_size, about=about, of=split, key="data.block_size")
