"""data=hf: data sets of Hugging Face, from the hub or a local folder: images or texts, with classes or without.

Source: https://huggingface.co/docs/datasets.
"""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path, PurePath
from typing import Any, ClassVar

from manyheads.runner.data.data_option import DOWNLOAD, DataOption
from manyheads.runner.data.images_or_text import ImagesOrText
from manyheads.runner.data.links import boundary, nearest_path, refuse_leaving
from manyheads.runner.data.samples import Samples
from manyheads.runner.errors import ConfigurationError, printable
from manyheads.runner.option.locate import missing
from manyheads.runner.option.rules import NULL, PLACE, TEXT, either, list_of, whole
from manyheads.runner.run.data_files import read_json


class HuggingFaceDataOption(DataOption):
    """Declares data that exists, or may be downloaded."""

    imports = ("manyheads.runner.data.rank.photos",)
    rules: ClassVar = {
        "hub": PLACE,
        "revision": PLACE,
        "download": DOWNLOAD,
        **dict.fromkeys(("subset", "train_split", "val_split", "test_split"), TEXT),
        **dict.fromkeys(("input_column", "label_column"), TEXT),
        "max_length": whole(1),
        "classes": either(list_of(TEXT), NULL),
    }
    hub: str | None
    subset: str | None

    def unavailable(self) -> str | None:
        return missing("datasets", extra="hf")

    def check_keys(self) -> None:
        super().check_keys()
        root, hub = self.root, self.hub
        if (root is None) == (hub is None):
            raise ConfigurationError.at(
                "data.root",
                root,
                f" and data.hub={hub}: data=hf needs exactly one of them. Set data.root to a local "
                "folder, or data.hub to the name of a data set on the hub, such as ylecun/mnist.",
            )
        if hub is not None and Path(hub).exists():
            raise ConfigurationError.at(
                "data.hub",
                hub,
                f": a folder of this name exists here, and would be read instead. Start from another "
                f"folder, or set data.root={hub}.",
            )
        if root is not None and self.subset is not None:
            raise ConfigurationError.at(
                "data.subset",
                self.subset,
                ": only data sets on the hub have subsets, since metadata in a "
                "local folder are not read. Set data.root to the folder with the files of this subset.",
            )
        if root is not None and not Path(root).is_dir():
            raise ConfigurationError.at(
                "data.root",
                root,
                f": there is no such folder.{nearest_path(Path(root))} Set it to the folder of a data set.",
            )


@dataclass(kw_only=True, eq=False)
class HuggingFaceData(ImagesOrText):
    """A data set's splits; its columns say whether samples are images, texts with a class each, or just text.

    Columns are names, or "auto"; ``label_column`` "none": text without classes. ``max_length``: tokens of a text;
    ``classes``: the values of the classes, in their order, None for those of the training samples.
    """

    root: str | None
    hub: str | None
    subset: str | None
    revision: str | None
    download: bool
    train_split: str
    val_split: str
    test_split: str
    input_column: str
    label_column: str
    max_length: int
    classes: Sequence[str] | None

    @cached_property
    def contents(self) -> Any:
        """The data set's contents, read on first use, by a rank."""
        from manyheads.runner.data.hf_contents import HfContents  # needs the package

        return HfContents(self)

    @property
    def num_classes(self) -> int | None:
        return self.contents.num_classes

    @property
    def classes_in_words(self) -> str:
        return self.contents.in_words

    def samples(self, split: str) -> Samples | None:
        return self.contents.samples(split)


SAVED = ("dataset_dict.json", "state.json")  # files that save_to_disk writes
KINDS = ("arrow", "csv", "imagefolder", "json", "parquet", "text")


def read_folder(root: Path, *, streaming: bool = False) -> Any:
    """The data set in a folder, as save_to_disk or another program wrote it. Raises ConfigurationError, OSError.

    ``streaming``: to read its files as samples are taken.
    """
    import datasets  # the option is also declared where the package is missing, and importing takes a second
    from datasets.data_files import DataFilesDict, get_data_patterns
    from datasets.load import infer_module_for_data_files

    within = boundary(root)
    for parent, folders, files in os.walk(root):
        for path in (Path(parent, name) for name in (*folders, *files)):
            if path.is_symlink():
                refuse_leaving(path, within)
    with offline():
        if any((root / name).is_file() for name in SAVED):
            _check_saved(root)
            if streaming:
                raise ConfigurationError.at(
                    "data.order", "stream", ": samples that save_to_disk wrote have numbers. Set data.order=auto."
                )
            return datasets.load_from_disk(str(root))
        files = DataFilesDict.from_patterns(get_data_patterns(str(root)), base_path=str(root))
        kind, options = infer_module_for_data_files(files)
        if kind not in KINDS:
            raise ConfigurationError.at(
                "data.root", printable(root), f" holds files of type {kind}. Allowed: {', '.join(KINDS)}."
            )
        listed = {name: list(paths) for name, paths in files.items()}
        return datasets.load_dataset(kind, data_files=listed, streaming=streaming, **options)


def _check_saved(root: Path) -> None:
    """Raises ConfigurationError if files of save_to_disk name other files than those beside them."""
    for path in sorted(root.rglob("*.json")):
        if path.name not in SAVED:
            continue
        content = read_json(path)
        listed = [*content.get("_data_files", []), *(content.get("_indices_data_files") or [])]
        for name in (*content.get("splits", []), *(data_file.get("filename") for data_file in listed)):
            if not isinstance(name, str) or PurePath(name).name != name:
                raise ConfigurationError(
                    f"{printable(path)} names {printable(str(name))}. Allowed: names of files beside it."
                )


@contextmanager
def offline() -> Iterator[None]:
    """A context in which neither library makes a request; ``local_files_only`` alone does not prevent all of them."""
    import datasets
    import huggingface_hub

    places: list[Any] = [datasets.config, huggingface_hub.constants]
    before = [module.HF_HUB_OFFLINE for module in places]
    try:
        for module in places:
            module.HF_HUB_OFFLINE = True
        yield
    finally:
        for module, value in zip(places, before, strict=True):
            module.HF_HUB_OFFLINE = value
