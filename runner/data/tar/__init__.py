"""data=tar: tar shards in webdataset's convention, read by random access: images, text, or several fields."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

from manyheads.runner.data.data_option import OBJECT
from manyheads.runner.data.links import boundary, content_of
from manyheads.runner.data.samples import Samples, StoredFile, TokenBlocks
from manyheads.runner.data.sharded import ShardedOption, ShardedSamples
from manyheads.runner.data.shards.index import TAR, ShardIndex
from manyheads.runner.data.shards.stored import StoredShards
from manyheads.runner.data.tar import members
from manyheads.runner.data.tar.index import CLASS, open_index, state_of
from manyheads.runner.data.tar.stored import StoredSamples
from manyheads.runner.errors import ConfigurationError
from manyheads.runner.option.rules import AUTO, TEXT, KeyKind, Rule, either, list_of, whole
from manyheads.runner.run.objects import is_address
from manyheads.runner.run.progress import working

IMAGES = ("jpg", "jpeg", "png", "ppm", "pgm", "bmp", "tif", "tiff", "webp", "gif")
TEXTS = ("txt", "text")
CODE = ("pyd", "pickle", "pkl", "pth", "pt", "py", "joblib", "dill")  # formats whose reading may run code
DECODERS = Rule(
    "by field, {_target_: <class>, ...}",
    lambda v: isinstance(v, dict) and all(map(OBJECT.accepts, v.values())),
    {"type": "object", "additionalProperties": OBJECT.schema},
    KeyKind.OBJECT,
)
CLASS_NAMES = "classnames.txt"  # one per line, as beside the shards of CLIP benchmarks


class TarOption(ShardedOption):
    """Declares which fields a sample has."""

    imports = ("manyheads.runner.data.rank.photos",)
    shards = TAR
    rules: ClassVar = {"fields": either(AUTO, list_of(TEXT)), "block_size": whole(1), "decoders": DECODERS}
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
            self.check_shards([shard.name for shard in index.about.shards])
            kind_of(index, fields)
        if is_address(self.root):
            self.warn_of_small_cache(index)

    @contextmanager
    def _index(self, advance: Callable[[], None] = lambda: None) -> Iterator[ShardIndex]:
        if isinstance(location := self.place, Path):
            yield open_index(location, advance)
            return
        with StoredShards(location, self.reading) as shards:
            yield shards.index(self.shards)


@dataclass(kw_only=True, eq=False)
class Tar(ShardedSamples):
    """Samples in tar shards.

    ``fields``: "auto" for images with classes (.cls), else text in blocks; or a list, for tuples of decoded fields.
    ``decoders``: by field, a function of its bytes.
    """

    shards = TAR
    fields: str | Sequence[str]
    decoders: Mapping[str, Any]

    @cached_property
    def index(self) -> ShardIndex:
        """The index of all shards, opened on first use."""
        return open_index(self.place) if isinstance(self.place, Path) else self.stored.index(self.shards)

    @cached_property
    def classes(self) -> list[str] | None:
        """The names of the classes, if they are beside the shards."""
        try:
            if isinstance(self.place, Path):
                content = content_of(self.place / CLASS_NAMES, within=boundary(self.place), most=2**24)
            elif CLASS_NAMES in self.stored.objects:
                content = self.stored.content_of(CLASS_NAMES)
            else:
                return None
            return [name.strip() for name in content.decode().splitlines()]
        except (FileNotFoundError, ValueError):
            return None

    @property
    def is_text(self) -> bool:
        return kind_of(self.index, self.fields) == "text"

    def counted_classes(self) -> int | None:
        return max(len(self.classes or ()), self.index.about.classes or 0) or None

    def samples(self, split: str) -> Samples | None:
        numbers = self.chosen(split, [shard.name for shard in self.index.about.shards])
        if split == "test" and not numbers:
            return None
        is_local, kind = isinstance(self.place, Path), kind_of(self.index, self.fields)
        samples = members.Samples(self.index, numbers) if is_local else StoredSamples(self.index, numbers, self.stored)
        if kind == "text":
            return self._text(samples, split)
        if kind == "images":
            contents = members.TarContents(samples, self._columns(IMAGES))
            return self.images(contents, members.Targets(samples), train=split == "train", classes=self.classes)
        from manyheads.runner.data.rank.tar import Fields  # imports torch, which the parent does without

        wanted = [(field.split("|"), self._columns(field.split("|"))) for field in self.fields]
        return Fields(samples, wanted, self.decoders, self.classes)

    def _columns(self, fields: Sequence[str]) -> list[int]:
        names = self.index.about.fields
        return [names.index(field) for field in fields if field in names]

    def _text(self, samples: members.Samples, split: str) -> TokenBlocks:
        states: list[Any] = [self.index.about.digest, samples.numbers]
        if isinstance(self.place, Path):
            shards = [self.place / self.index.about.shards[number].name for number in samples.numbers]
            states = [(str(path.absolute()), *state_of(path)) for path in shards]
        texts = (_decoded(content) for content in members.TarContents(samples, self._columns(TEXTS)))
        return self.blocks(texts, self.block_size, about=["tar", states], of=split, key="data.block_size")


def _decoded(content: StoredFile) -> str:
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        raise ConfigurationError(f"{content.origin()} is not UTF-8 ({error.reason} at byte {error.start}).") from None


def kind_of(index: ShardIndex, fields: str | Sequence[str]) -> str:
    """The type of samples: "images" with classes, "text", or "fields" that were named. Raises ConfigurationError."""
    names, about = index.about.fields, index.about
    if isinstance(fields, str):
        if {*IMAGES} & {*names}:
            if about.classes is None:
                raise ConfigurationError.at(
                    "data.fields",
                    fields,
                    f": images need a class number each, in a file .{CLASS}, which {about.unlabelled} does not have. "
                    f"Set it to a list of the fields that make a sample. Allowed: {', '.join(names)}.",
                    allowed=names,
                )
            return "images"
        if {*TEXTS} & {*names}:
            return "text"
    for field in [] if isinstance(fields, str) else fields:
        if not {*field.split("|")} & {*names}:
            raise ConfigurationError.at(
                "data.fields", field, f": no sample has it. Allowed: {', '.join(names)}.", allowed=names
            )
    if isinstance(fields, str):
        raise ConfigurationError.at(
            "data.fields",
            fields,
            f": there are neither images nor text. Set it to a list of the fields that make a sample. Allowed: "
            f"{', '.join(names)}.",
            allowed=names,
        )
    return "fields"
