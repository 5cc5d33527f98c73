"""A data set in a local folder, read as data: its metadata choose neither files nor how they are read.

``datasets.load_dataset(folder)`` would let README.md choose files, separators, columns and addresses.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePath
from typing import Any

import datasets
import huggingface_hub
from datasets.data_files import DataFilesDict, get_data_patterns
from datasets.load import infer_module_for_data_files

from manyheads.runner.data.base.links import refuse_leaving
from manyheads.runner.run.data_files import read_json
from manyheads.runner.run.errors import ConfigurationError, printable

SAVED = ("dataset_dict.json", "state.json")  # of what save_to_disk wrote
KINDS = ("arrow", "csv", "imagefolder", "json", "parquet", "text")


def read_folder(root: Path) -> Any:
    """The data set in a folder, as save_to_disk or another program wrote it. Raises ConfigurationError, OSError."""
    for parent, folders, files in os.walk(root):
        for path in (Path(parent, name) for name in (*folders, *files)):
            if path.is_symlink():
                refuse_leaving(root, path)
    with offline():
        if any((root / name).is_file() for name in SAVED):
            _check_saved(root)
            return datasets.load_from_disk(str(root))
        files = DataFilesDict.from_patterns(get_data_patterns(str(root)), base_path=str(root))
        kind, options = infer_module_for_data_files(files)
        if kind not in KINDS:
            allowed = f"Allowed: {', '.join(KINDS)}"
            raise ConfigurationError(f"data.root={printable(root)} holds files of type {kind}. {allowed}.")
        return datasets.load_dataset(kind, data_files={name: list(paths) for name, paths in files.items()}, **options)


def _check_saved(root: Path) -> None:
    """Raises ConfigurationError if files of save_to_disk name other files than those beside them."""
    for path in sorted(root.rglob("*.json")):
        if path.name not in SAVED:
            continue
        content = read_json(path)
        listed = [*content.get("_data_files", []), *(content.get("_indices_data_files") or [])]
        names = [*content.get("splits", []), *(each.get("filename") for each in listed)]
        for name in names:
            if not isinstance(name, str) or PurePath(name).name != name:
                wrong = f"{printable(path)} names {printable(str(name))}"
                raise ConfigurationError(f"{wrong}. Allowed: names of files beside it.")


@contextmanager
def offline() -> Iterator[None]:
    """A context in which neither library makes a request; ``local_files_only`` alone does not prevent all of them."""
    places: list[Any] = [datasets.config, huggingface_hub.constants]
    before = [place.HF_HUB_OFFLINE for place in places]
    try:
        for place in places:
            place.HF_HUB_OFFLINE = True
        yield
    finally:
        for place, value in zip(places, before, strict=True):
            place.HF_HUB_OFFLINE = value
