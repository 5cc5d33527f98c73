"""The settings and the answer of ``manyheads pack``."""

from dataclasses import dataclass
from typing import Annotated, NamedTuple

from manyheads.runner.data.shards.index import ShardIndex
from manyheads.runner.errors import printable
from manyheads.runner.machine import invocation
from manyheads.runner.run.answer import Answer
from manyheads.runner.wording import size_in_words


@dataclass(frozen=True)
class Settings:
    """How to pack.

    ``to``: "tar", "tokens", or None for the one that fits the data. ``shard_size``: the most bytes of a shard.
    ``shuffle``: the seed of the order, None to keep it. ``resize``: pixels of the shorter side, None to keep all files.
    ``quality``: of resized images, as JPEG.
    """

    to: str | None
    shard_size: int
    shuffle: int | None
    resize: int | None
    quality: int


class Written(NamedTuple):
    """The files that a writer has written, see ``Packed``.

    ``contents``: the index of the shards; ``overrides``: further ones that training on them needs.
    """

    splits: dict[str, int]
    shards: int
    resized: int
    contents: ShardIndex
    overrides: tuple[str, ...] = ()


@dataclass(frozen=True)
class Packed(Answer):
    """A run's data as shards."""

    folder: Annotated[str, "the folder, or the address"]
    kind: Annotated[str, "the option of data that reads them: tar or tokens"]
    splits: Annotated[dict[str, int], "number of samples, or of tokens, in train, val and test"]
    shards: Annotated[int, "number of files with samples"]
    resized: Annotated[int, "images that were scaled down"]
    bytes: int
    train: Annotated[str, "overrides that train on them"]

    def show(self) -> None:
        counts = ", ".join(f"{count:,} {split}" for split, count in self.splits.items())
        resized = f", {self.resized:,} resized" if self.resized else ""
        print(f"{printable(self.folder)}: {counts} in {self.shards:,} shards, {size_in_words(self.bytes)}{resized}")
        print(f"train on them: {invocation.command('train')} {printable(self.train)}")
