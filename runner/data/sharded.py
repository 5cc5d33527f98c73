"""What options have in common whose samples are in shards below a root, in a folder or in object storage."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import InitVar, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

from manyheads.runner.data.data_option import DataOption, NamedSplits, ObjectListing
from manyheads.runner.data.images_or_text import ImagesOrText
from manyheads.runner.data.left_out import LeftOut
from manyheads.runner.data.shard_names import chosen
from manyheads.runner.data.shards.folders import Folder, LocalFolder, StoredFolder
from manyheads.runner.data.shards.index import ShardIndex, ShardKind
from manyheads.runner.data.shards.stored import Reading, StoredShards
from manyheads.runner.data.tokenizing import vocabulary
from manyheads.runner.errors import ConfigurationError, printable, warn
from manyheads.runner.option.rules import TEXT
from manyheads.runner.option.tree import Section
from manyheads.runner.run import objects
from manyheads.runner.run.objects import Address, is_address, place_of

SPLITS = ("train", "val", "test")
TEXTS = (".md", ".txt", ".json", ".yaml", ".yml")  # of files that may describe shards


class BelowRoot:
    """The shards of one kind below a root: the part that an option shares with its data."""

    shards: ClassVar[ShardKind]
    root: str

    @cached_property
    def place(self) -> Path | Address:
        """The root of the shards."""
        return place_of(self.root, key="data.root")


class ShardedOption(BelowRoot, DataOption):
    """Declares which shards train, validate and test, and how object storage is read."""

    reads_storage = True
    without_effect = Reading.keys
    rules: ClassVar = {**{f"{split}_shards": TEXT for split in SPLITS}, **Reading.rules}
    root: str

    @property
    def reading(self) -> Reading:
        """How object storage is read."""
        return Reading.of(self.section)

    def resolved_keys(self) -> Section:
        return {**super().resolved_keys(), **self._local("cache_folder")}

    def unavailable(self) -> str | None:
        return objects.unavailable() if is_address(self.section["root"]) else None

    def listing(self) -> ObjectListing | None:
        if not isinstance(location := self.place, Address):
            return None
        with StoredShards(location, self.reading) as shards:
            about = shards.index(self.shards).about
            return ObjectListing([(shard.name, shard.size) for shard in about.shards], about.digest)

    def chosen(self, split: str, names: Sequence[str]) -> list[int]:
        """Indices of the shards of a split, which may be none if it need not exist. Raises ConfigurationError."""
        needed = ["train"] if self.partition is not None else ["train", "val"]
        return chosen(split, self.section[f"{split}_shards"], names, may_lack=split not in needed)

    def read_names(self, folder: Folder) -> list[str]:
        """The names of the shards that splits read, split by split."""
        return [folder.names[number] for split in SPLITS for number in self.chosen(split, folder.names)]

    def own_validation(self) -> bool | None:
        if not isinstance(location := self.place, Path):
            return None
        names = LocalFolder(location, self.shards).names
        return bool(chosen("val", self.section["val_shards"], names, may_lack=True))

    def check_shards(self, names: Sequence[str]) -> None:
        """Raises ConfigurationError for splits without shards, or that share some; names what no split reads."""
        shards = {split: {*self.chosen(split, names)} for split in SPLITS}
        for split, other in (("train", "val"), ("train", "test"), ("val", "test")):
            if both := sorted(shards[split] & shards[other]):
                key = f"{other}_shards"
                raise ConfigurationError.at(
                    f"data.{key}", self.section[key], f": {names[both[0]]} is among data.{split}_shards too."
                )
        unread = {*range(len(names))} - {number for chosen in shards.values() for number in chosen}
        why = ", which data.train_shards, data.val_shards and data.test_shards do not match."
        LeftOut.of(names[number] for number in unread).warn("shard", why)
        if isinstance(location := self.place, Path):
            why = f" below {printable(location)}. Shards end in {' or '.join(self.shards.suffixes)}."
            LeftOut.below(location, suffixes=(*self.shards.suffixes, *TEXTS)).warn("file", why)

    @contextmanager
    def folder(self) -> Iterator[Folder]:
        """A context with the shards, after a check of each split. Raises ConfigurationError."""
        if isinstance(location := self.place, Path):
            folder = LocalFolder(location, self.shards)
            self.check_shards(folder.names)
            yield folder
            return
        with StoredShards(location, self.reading) as shards:
            stored = StoredFolder(shards, self.shards)
            self.check_shards(stored.names)
            self.warn_of_small_cache(stored.index)
            yield stored

    def warn_of_small_cache(self, index: ShardIndex) -> None:
        """Warn if the cache cannot hold all shards, and they are read in an order in which that matters."""
        size, most = sum(shard.size for shard in index.about.shards) / 1e9, self.section["cache_gb"]
        if size > most and self.order != "blocks":
            warn(
                f"data.cache_gb={most:g} is less than the {size:,.1f} GB of the shards, so each epoch fetches most "
                "of them again, in random order. Raise it, set data.order=blocks, or lower data.fetch_mb."
            )


@dataclass(kw_only=True, eq=False)
class Sharded(BelowRoot, NamedSplits):
    """Shards below ``root``; ``train_shards`` and so on are patterns of their names, with * and {a,b} or {000..123}.

    The last five arguments are for object storage, see ``Reading``.
    """

    root: str
    train_shards: str
    val_shards: str
    test_shards: str
    cache_folder: str | None
    cache_gb: float
    fetch_mb: float
    read_ahead: int
    retry_for: float | str

    @cached_property
    def stored(self) -> StoredShards:
        """The shards in object storage."""
        assert isinstance(self.place, Address)
        return StoredShards(self.place, Reading.of({key: getattr(self, key) for key in Reading.keys}))

    @cached_property
    def folder(self) -> Folder:
        """The shards, if their index lists blocks."""
        if isinstance(self.place, Path):
            return LocalFolder(self.place, self.shards)
        return StoredFolder(self.stored, self.shards)

    def chosen(self, split: str, names: Sequence[str]) -> list[int]:
        """Indices of the shards of a split, of which only a test may have none. Raises ConfigurationError."""
        return chosen(split, getattr(self, f"{split}_shards"), names, may_lack=split == "test")

    def names(self, split: str) -> list[str]:
        """The names of the shards of a split, as ``chosen``, if their index lists blocks."""
        return [self.folder.names[number] for number in self.chosen(split, self.folder.names)]


@dataclass(kw_only=True, eq=False)
class _Keys(Sharded, ImagesOrText):
    num_classes: InitVar[int | None]
    block_size: int

    def __post_init__(self, num_classes: int | None) -> None:
        super().__post_init__()
        self._given = num_classes


class ShardedSamples(_Keys):
    """Shards of images with classes, or of text in blocks of ``block_size`` tokens.

    ``num_classes``: None for the number that the shards say.
    """

    @property
    def is_text(self) -> bool:
        """Whether the shards hold text."""
        raise NotImplementedError

    def counted_classes(self) -> int | None:
        """The number of classes that the shards say."""
        raise NotImplementedError

    @property
    def num_classes(self) -> Any:
        return vocabulary(self.tokenizer) if self.is_text else self._given or self.counted_classes()

    @property
    def classes_in_words(self) -> str:
        return f"{self.block_size} tokens each, of {self.num_classes}" if self.is_text else super().classes_in_words
