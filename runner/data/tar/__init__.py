"""data=tar: tar shards in webdataset's convention, read by random access: images, text, or several fields."""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

from manyheads.runner.data.data_option import Data, DataOption, ImageFiles, Listing, Samples, StoredFile, TokenBlocks
from manyheads.runner.data.links import boundary, content_of
from manyheads.runner.data.shard_names import chosen
from manyheads.runner.data.tar import members
from manyheads.runner.data.tar.index import CLASS, Index, open_index, state_of
from manyheads.runner.data.tar.stored import Reading, Shards, StoredSamples
from manyheads.runner.data.tokenizing import Bytes, blocks_of_texts, vocabulary
from manyheads.runner.errors import ConfigurationError, warn
from manyheads.runner.option.rules import AUTO, DURATION, TEXT, either, list_of, number, whole
from manyheads.runner.option.run_config import RunConfig
from manyheads.runner.run.progress import working
from manyheads.runner.run.storage import storage
from manyheads.runner.run.storage.address import Address, is_address, place_of

IMAGES = ("jpg", "jpeg", "png", "ppm", "pgm", "bmp", "tif", "tiff", "webp", "gif")
TEXTS = ("txt", "text")
CODE = ("pyd", "pickle", "pkl", "pth", "pt", "py", "joblib", "dill")  # formats whose reading may run code
SPLITS = ("train", "val", "test")
READING = ("cache_folder", "cache_gb", "fetch_mb", "read_ahead", "retry_for")  # how object storage is read
CLASS_NAMES = "classnames.txt"  # one per line, as beside the shards of CLIP benchmarks


class TarOption(DataOption):
    """Declares which shards train, validate and test, and which fields a sample has."""

    imports = ("manyheads.runner.data.rank.photos",)
    reads_storage = True
    steering = ("cache_folder",)
    without_effect = READING
    rules: ClassVar = {
        **{f"{split}_shards": TEXT for split in SPLITS},
        "fields": either(AUTO, list_of(TEXT)),
        "block_size": whole(1),
        "cache_folder": TEXT,
        "cache_gb": number(above=0),
        "fetch_mb": number(above=0),
        "read_ahead": whole(0),
        "retry_for": DURATION,
    }
    root: str
    decoders: Mapping[str, Any]

    def check_keys(self) -> None:
        super().check_keys()
        fields = self.section["fields"]
        for field in "|".join(fields).split("|") if isinstance(fields, list) else ():
            if field in CODE and field not in self.decoders:
                raise ConfigurationError.at(
                    "data.fields",
                    field,
                    ": reading such a file may run what somebody else has put into it. If it is yours, name a "
                    f"class whose objects are called with its bytes: +data.decoders.{field}._target_=my_package.Read",
                )
        with working("looking into the shards", kept="no run was started") as work, self._index(work.advance) as index:
            self._check_shards(index)
            kind_of(index, fields)
        if is_address(self.root):
            self._warn_of_small_cache(index)

    def resolved(self, run: RunConfig) -> RunConfig:
        run = super().resolved(run)
        folder = self.section["cache_folder"]
        return (
            run if folder is None else run.changed(data={"cache_folder": os.path.abspath(os.path.expanduser(folder))})
        )

    def listing(self) -> Listing | None:
        if not is_address(self.root):
            return None
        with self._index() as index:
            return Listing([(each.name, each.size) for each in index.about.shards], index.about.digest)

    def unavailable(self) -> str | None:
        return storage.unavailable() if is_address(self.section["root"]) else None

    def _warn_of_small_cache(self, index: Index) -> None:
        size, most = sum(each.size for each in index.about.shards) / 1e9, self.section["cache_gb"]
        if size > most and self.order != "blocks":
            warn(
                f"data.cache_gb={most:g} is less than the {size:,.1f} GB of the shards, so each epoch fetches most "
                "of them again, in random order. Raise it, set data.order=blocks, or lower data.fetch_mb."
            )

    @contextmanager
    def _index(self, advance: Callable[[], None] = lambda: None) -> Iterator[Index]:
        place = place_of(self.root, key="data.root")
        if isinstance(place, Path):
            yield open_index(place, advance)
            return
        shards = Shards(place, Reading.of(**{key: self.section[key] for key in READING}))
        with shards.storage:
            yield shards.index()

    def _check_shards(self, index: Index) -> None:
        """Raises ConfigurationError for splits without shards, or that share some."""
        needed = ["train"] if self.partition is not None else ["train", "val"]
        shards = {split: {*self._shards(split, index, may_lack=split not in needed)} for split in SPLITS}
        for split, other in (("train", "val"), ("train", "test"), ("val", "test")):
            if both := sorted(shards[split] & shards[other]):
                name = index.about.shards[both[0]].name
                key = f"{other}_shards"
                raise ConfigurationError.at(
                    f"data.{key}", self.section[key], f": {name} is among data.{split}_shards too."
                )

    def _shards(self, split: str, index: Index, *, may_lack: bool) -> list[int]:
        names = [each.name for each in index.about.shards]
        return chosen(split, self.section[f"{split}_shards"], names, may_lack=may_lack)


class Tar(Data):
    """Shards below ``root``; ``train_shards`` and so on are patterns of their names, with * and {a,b} or {000..123}.

    ``fields``: "auto" for images with classes (.cls), else text in blocks; or a list, for tuples of decoded fields.
    ``decoders``: by field, a function of its bytes; ``tokenizer``: an object with ``encode(text)`` and ``vocab_size``,
    None for bytes. The last five arguments are for object storage, see ``Reading.of``.
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
        fields: str | Sequence[str],
        decoders: Mapping[str, Any],
        num_classes: int | None,
        image_size: int,
        train_image_size: int | None,
        val_resize: int | None,
        tokenizer: Any,
        block_size: int,
        cache_folder: str | None,
        cache_gb: float,
        fetch_mb: float,
        read_ahead: int,
        retry_for: float | str,
    ):
        self.root, self.fields, self.decoders = place_of(root, key="data.root"), fields, decoders
        self._reading = {
            "cache_folder": cache_folder,
            "cache_gb": cache_gb,
            "fetch_mb": fetch_mb,
            "read_ahead": read_ahead,
            "retry_for": retry_for,
        }
        self.patterns = dict(zip(SPLITS, (train_shards, val_shards, test_shards), strict=True))
        self.image_size, self.train_size, self.resize = image_size, train_image_size, val_resize
        self.tokenizer = Bytes() if tokenizer is None else tokenizer
        self.block_size, self._num_classes = block_size, num_classes

    @cached_property
    def index(self) -> Index:
        """The index of all shards, opened on first use."""
        return open_index(self.root) if isinstance(self.root, Path) else self.shards.index()

    @cached_property
    def shards(self) -> Shards:
        """The shards in object storage."""
        assert isinstance(self.root, Address)
        return Shards(self.root, Reading.of(**self._reading))  # type: ignore[arg-type]

    @cached_property
    def classes(self) -> list[str] | None:
        """The names of the classes, if they are beside the shards."""
        try:
            if isinstance(self.root, Path):
                content = content_of(self.root / CLASS_NAMES, within=boundary(self.root), most=2**24)
            elif CLASS_NAMES in self.shards.objects:
                content = self.shards.content_of(CLASS_NAMES)
            else:
                return None
            text = content.decode()
        except (FileNotFoundError, ValueError):
            return None
        return [name.strip() for name in text.splitlines()]

    @property
    def num_classes(self) -> Any:
        if kind_of(self.index, self.fields) == "text":
            return vocabulary(self.tokenizer)
        known = len(self.classes) if self.classes else 0
        return self._num_classes or max(known, self.index.about.classes or 0) or None

    @property
    def classes_in_words(self) -> str:
        if kind_of(self.index, self.fields) == "text":
            return f"{self.block_size} tokens each, of {self.num_classes}"
        return super().classes_in_words

    def split(self, *, train: bool) -> Samples:
        return self._samples("train" if train else "val")

    def test(self) -> Samples | None:
        names = [each.name for each in self.index.about.shards]
        return self._samples("test") if chosen("test", self.patterns["test"], names, may_lack=True) else None

    def _samples(self, split: str) -> Samples:
        kind = kind_of(self.index, self.fields)
        if kind == "text":
            return self._text(split)
        own = self._own(split)
        if kind == "images":
            contents = members.Contents(own, self._columns(IMAGES))
            return ImageFiles(
                contents,
                members.Targets(own),
                self.image_size,
                split == "train",
                self.classes,
                train_size=self.train_size,
                resize=self.resize,
            )
        from manyheads.runner.data.rank.tar import Fields  # imports torch, which the parent does without

        wanted = [(each.split("|"), self._columns(each.split("|"))) for each in self.fields]
        return Fields(own, wanted, self.decoders, self.classes)

    def _own(self, split: str) -> members.Samples:
        names = [each.name for each in self.index.about.shards]
        numbers = chosen(split, self.patterns[split], names)
        if isinstance(self.root, Path):
            return members.Samples(self.index, numbers)
        return StoredSamples(self.index, numbers, self.shards)

    def _columns(self, fields: Sequence[str]) -> list[int]:
        known = self.index.about.fields
        return [known.index(each) for each in fields if each in known]

    def _text(self, split: str) -> TokenBlocks:
        own = self._own(split)
        states: list[Any] = [self.index.about.digest, own.numbers]
        if isinstance(self.root, Path):
            shards = [self.root / self.index.about.shards[number].name for number in own.numbers]
            states = [(str(each.absolute()), *state_of(each)) for each in shards]
        texts = (_decoded(each) for each in members.Contents(own, self._columns(TEXTS)))
        key = "data.block_size"
        return blocks_of_texts(texts, self.tokenizer, self.block_size, about=["tar", states], of=split, key=key)


def _decoded(content: StoredFile) -> str:
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        raise ConfigurationError(f"{content.origin()} is not UTF-8 ({error.reason} at byte {error.start}).") from None


def kind_of(index: Index, fields: str | Sequence[str]) -> str:
    """The type of samples: "images" with classes, "text", or "fields" that were named. Raises ConfigurationError."""
    known, about = index.about.fields, index.about
    if isinstance(fields, str):
        if {*IMAGES} & {*known}:
            if about.classes is None:
                raise ConfigurationError.at(
                    "data.fields",
                    fields,
                    f": images need a class number each, in a file .{CLASS}, which {about.unlabelled} does not have. "
                    f"Set it to a list of the fields that make a sample. Allowed: {', '.join(known)}.",
                    allowed=known,
                )
            return "images"
        if {*TEXTS} & {*known}:
            return "text"
    for each in [] if isinstance(fields, str) else fields:
        if not {*each.split("|")} & {*known}:
            raise ConfigurationError.at(
                "data.fields", each, f": no sample has it. Allowed: {', '.join(known)}.", allowed=known
            )
    if isinstance(fields, str):
        raise ConfigurationError.at(
            "data.fields",
            fields,
            f": there are neither images nor text. Set it to a list of the fields that make a sample. Allowed: "
            f"{', '.join(known)}.",
            allowed=known,
        )
    return "fields"
