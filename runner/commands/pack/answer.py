"""What ``manyheads pack`` is asked, and what it answers."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, NamedTuple

from manyheads.runner.errors import printable
from manyheads.runner.machine import invocation
from manyheads.runner.run.answer import Answer
from manyheads.runner.wording import size_in_words


@dataclass(frozen=True)
class Settings:
    """``to``: "tar", "tokens" or None for what fits; ``shard_size``: bytes at most; ``shuffle``: seed of the order.

    ``resize``: pixels of the shorter side, None to keep the files; ``quality``: of JPEGs that are written anew.
    """

    to: str | None
    shard_size: int
    shuffle: int | None
    resize: int | None
    quality: int


class Written(NamedTuple):
    """What a writer has written, as in ``Packed``. ``overrides``: that are needed to train on it."""

    splits: dict[str, int]
    shards: int
    resized: int
    overrides: tuple[str, ...] = ()


@dataclass(frozen=True)
class Packed(Answer):
    """A run's data as shards."""

    folder: Path
    kind: Annotated[str, "the option of data that reads them: tar or tokens"]
    splits: Annotated[dict[str, int], "number of samples, or of tokens, in train, val and test"]
    shards: Annotated[int, "number of files that hold them"]
    resized: Annotated[int, "images that were scaled down"]
    bytes: int
    train: Annotated[str, "overrides that train on them"]

    def show(self) -> None:
        counts = ", ".join(f"{count:,} {split}" for split, count in self.splits.items())
        resized = f", {self.resized:,} resized" if self.resized else ""
        print(f"{printable(self.folder)}: {counts} in {self.shards:,} shards, {size_in_words(self.bytes)}{resized}")
        print(f"train on them: {invocation.command('train')} {printable(self.train)}")
