"""The contents of a Hugging Face data set, determined from its columns, and read by the datasets library."""

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

import datasets
import numpy as np

from manyheads.runner.data.hf import offline, read_folder
from manyheads.runner.data.links import boundary
from manyheads.runner.data.samples import Samples, TokenBlocks
from manyheads.runner.data.tokenizing import vocabulary
from manyheads.runner.errors import ConfigurationError
from manyheads.runner.option.locate import load
from manyheads.runner.wording import first_line, nearest

if TYPE_CHECKING:
    from manyheads.runner.data.hf import HuggingFaceData

PLACE = ("root", "hub", "subset", "revision", "download")  # the keys that say where a data set is
VALIDATION = ("validation", "val", "valid", "dev", "test")  # names of a validation split, in order of preference


class HfContents:
    """The splits of one data set. Raises ConfigurationError if a split or column is missing or has another type."""

    def __init__(self, data: "HuggingFaceData"):
        self.data = data
        self.splits = read(**{key: getattr(data, key) for key in PLACE}, streaming=data.streaming is not None)
        self.train = self._split("train")
        features = self.train.features or {}  # of a stream of files that don't say
        self.input = self._column("input", _inputs(features), _images(features) + _texts(features), "images or texts")
        self.is_image = isinstance(features[self.input], datasets.Image)
        self.target = None
        if data.label_column != "none":
            self.target = self._column("label", _targets(features, self.input), _values(features), "classes")
        elif self.is_image:
            raise ConfigurationError.at(
                "data.label_column", "none", f": images need classes. Set it to one of {', '.join(features)}."
            )
        self.tokenizer = data.tokenizer
        self.classes = None if self.target is None else _classes(self.train, self.target, data.classes)
        self.num_classes = vocabulary(self.tokenizer) if self.classes is None else len(self.classes)

    @property
    def in_words(self) -> str:
        """The data in words, for the run's header."""
        if self.classes is None:
            return f"{self.data.max_length} tokens each, of {self.num_classes}"
        return f"{'images' if self.is_image else 'texts'} in {len(self.classes)} classes"

    def samples(self, name: str) -> Samples | None:
        """The samples of "train", "val" or "test"; None if there are no test samples."""
        if (rows := self._split(name)) is None:
            return None
        if self.data.streaming is not None:
            return self._stream(rows, train=name == "train")
        if self.target is None:
            return self._blocks(rows, name)
        assert self.classes is not None
        targets = _numbers(rows, self.target, self.classes)
        if not self.is_image:
            from manyheads.runner.data.rank.hf import Texts  # imports torch, which the parent does without

            return Texts(rows, self.input, targets, self.tokenizer, self.data.max_length, self.classes)
        images = rows.select_columns(self.input).cast_column(self.input, datasets.Image(decode=False))
        root = self.data.root
        files, within = DataFiles(images, self.input, root), root and boundary(root)
        return self.data.images(files, targets, train=name == "train", classes=self.classes, within=within)

    def _stream(self, rows: Any, *, train: bool) -> Samples:
        data, key = self.data, "data.root" if self.data.root else "data.hub"
        assert data.streaming is not None
        samples = load("manyheads.runner.data.rank.streams.hf.samples_of")(self, rows, train=train)
        build_stream = load("manyheads.runner.data.rank.streams.parts.build_stream")
        return build_stream(samples, **data.streaming, is_train=train, name=data.root or data.hub, key=key)

    def _split(self, name: str) -> Any:
        wanted = getattr(self.data, f"{name}_split")
        val = next((candidate for candidate in VALIDATION if candidate in self.splits), None)
        split = {"val": val, "test": "test" if val != "test" else None}.get(name) if wanted == "auto" else wanted
        if split is None and name == "test":
            return None
        if split not in self.splits:
            raise ConfigurationError.at(
                f"data.{name}_split",
                wanted,
                f": the data set has {', '.join(self.splits)}. Set it to one of them"
                + (
                    ", or set data.val_fraction to take validation samples from the training samples." * (name == "val")
                    or "."
                ),
            )
        return self.splits[split]

    def _column(self, key: str, fitting: list[str], allowed: list[str], what: str) -> str:
        """The column that was named, or the first that fits. ``allowed``: those that may be named."""
        wanted = getattr(self.data, f"{key}_column")
        if wanted == "auto" and fitting:
            return fitting[0]
        if wanted not in allowed:
            other = f" It holds {type(kind).__name__}." if (kind := self.train.features.get(wanted)) is not None else ""
            meant = "" if other or wanted == "auto" else nearest(wanted, allowed)
            allowed = [*allowed, "none for text without classes"] if key == "label" else allowed
            rest = f": no column of {what} found.{other}{meant} Allowed: {', '.join(allowed)}."
            raise ConfigurationError.at(f"data.{key}_column", wanted, rest, allowed=allowed)
        return str(wanted)

    def _blocks(self, rows: Any, split: str) -> TokenBlocks:
        about, size = ["hf", rows._fingerprint, self.input], self.data.max_length
        return self.data.blocks(rows[self.input], size, about=about, of=split, key="data.max_length")


class DataFiles(Sequence[Any]):
    """For each row the content of its image file or, if only that is recorded, the file's path."""

    def __init__(self, rows: Any, column: str, root: str | None):
        self.rows, self.column = rows, column
        self.root = None if root is None else Path(root).resolve()

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: Any) -> Any:
        return self.file(self.rows[int(index)][self.column])

    def file(self, image: Mapping[str, Any]) -> Any:
        """The content of a row's image, or the path of its file."""
        if image["bytes"] is not None:
            return image["bytes"]
        return image["path"] if self.root is None else str(self.root / image["path"])


def read(
    *,
    root: str | None,
    hub: str | None,
    subset: str | None,
    revision: str | None,
    download: bool,
    streaming: bool = False,
) -> Any:
    """The data set's splits by name. Raises ConfigurationError if it cannot be read, or downloaded.

    ``streaming``: as samples are taken, which needs the hub, but downloads no complete files.
    """
    key = f"data.root={root}" if hub is None else f"data.hub={hub}"
    datasets.disable_progress_bars()  # of every rank
    try:
        if root is not None:
            dataset = read_folder(Path(root).resolve(), streaming=streaming)
        else:
            config = datasets.DownloadConfig(local_files_only=not download)
            options = {"revision": revision, "download_config": config, "streaming": streaming}
            with nullcontext() if download else offline():
                dataset = datasets.load_dataset(hub, subset, **options)
    except ConfigurationError:
        raise
    except Exception as error:  # each format, and the network, has errors of its own
        reason = first_line(error) or type(error).__name__
        remedy = "Set it to the folder of a data set" if hub is None else "Fetch it where there is a network"
        raise ConfigurationError(f"{key} cannot be read ({reason}). {remedy}, or choose another one.") from None
    return dataset if isinstance(dataset, dict) else {"train": dataset}


def _inputs(features: Any) -> list[str]:
    return _images(features) or sorted(_texts(features), key=lambda name: name != "text")


def _images(features: Any) -> list[str]:
    return [name for name, kind in features.items() if isinstance(kind, datasets.Image)]


def _texts(features: Any) -> list[str]:
    return [name for name, kind in features.items() if getattr(kind, "dtype", None) in ("string", "large_string")]


def _values(features: Any) -> list[str]:
    """Columns with one value in each row, not audio, a list or the like."""
    return [name for name, kind in features.items() if isinstance(kind, (datasets.ClassLabel, datasets.Value))]


def _targets(features: Any, taken: str) -> list[str]:
    classes = [name for name, kind in features.items() if isinstance(kind, datasets.ClassLabel)]
    usual, columns = ("label", "labels", "target", "class"), _values(features)
    return classes or [name for name in usual if name in columns and name != taken]


def _classes(rows: Any, column: str, given: Sequence[str] | None = None) -> list[str]:
    """The names of the classes: the column's own, those given, or all values of the training samples in their order."""
    if isinstance(kind := rows.features[column], datasets.ClassLabel):
        return list(kind.names)
    if given is not None:
        return [*given]
    if not hasattr(rows, "unique"):
        raise ConfigurationError.at(
            "data.classes",
            None,
            ": a stream is not searched for the values of its classes. Set it to them, such as [bad,good].",
        )
    values = sorted(rows.unique(column))
    if fractions := [fraction for fraction in values if isinstance(fraction, float) and not fraction.is_integer()]:
        raise ConfigurationError.at(
            "data.label_column",
            column,
            f" holds numbers such as {fractions[0]:g}, not classes. Set it to a column of classes; or, to predict "
            "these numbers, give task=regression a data set class of your own that returns (input, number).",
        )
    return [str(value) for value in values]


def _numbers(rows: Any, column: str, classes: Sequence[str]) -> Any:
    """The class number of each row. Raises ConfigurationError for a value that no training sample has."""
    values = rows.with_format("numpy", columns=[column])[column][:]
    if isinstance(rows.features[column], datasets.ClassLabel):
        return np.asarray(values, np.int64)
    places = {name: number for number, name in enumerate(classes)}
    if unknown := sorted({str(value) for value in values} - places.keys()):
        raise ConfigurationError.at(
            "data.label_column", column, f": {unknown[0]} is not a class of the training samples."
        )
    return np.array([places[str(value)] for value in values], np.int64)
