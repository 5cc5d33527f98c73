"""Image files whose classes are in a CSV file beside them, instead of in the names of folders."""

import csv
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from manyheads.runner.data.links import boundary, content_of
from manyheads.runner.errors import ConfigurationError, printable

FILE = ("file", "filename", "file_name", "image", "path", "name")
LABEL = ("label", "class", "category", "target", "species")
SPLIT = "split"


class LabelledImage(NamedTuple):
    """A file by its name below the root, its class, and the split that it belongs to."""

    file: str
    label: str
    split: str


def labelled_images(path: str, root: Path) -> list[LabelledImage]:
    """The rows of a CSV file of names and classes, each of an image that exists.

    Raises ConfigurationError for a file that cannot be read, lacks a column, or names an image that does not exist.
    """
    try:
        lines = content_of(path, within=boundary(Path(path).parent)).decode("utf-8-sig").splitlines()
    except (OSError, ValueError) as error:
        raise ConfigurationError.at(
            "data.labels", path, f" cannot be read: {printable(str(error))}. Correct it."
        ) from None
    reader = csv.DictReader(lines, delimiter=max(",;\t", key="".join(lines[:1]).count))
    reader.fieldnames = names = [name.strip() for name in reader.fieldnames or ()]
    file, label = (_column(names, accepted, path) for accepted in (FILE, LABEL))
    images = [LabelledImage(row[file] or "", row[label] or "", row.get(SPLIT) or "train") for row in reader]
    for number, image in enumerate(images, 2):
        if not image.file or not image.label:
            raise ConfigurationError.at("data.labels", path, f": line {number} lacks a name or a class. Correct it.")
        if not (root / image.file).is_file():
            raise ConfigurationError.at(
                "data.labels",
                path,
                f": line {number} names {printable(image.file)}, which does not exist in {printable(root)}. Correct "
                "it, or set data.root to the folder that its names are below.",
            )
    if not images:
        raise ConfigurationError.at("data.labels", path, " has no rows below its header. Set it to a file with some.")
    return images


def _column(names: Sequence[str], accepted: Sequence[str], path: str) -> str:
    """The column that has one of these names."""
    if (column := next((name for name in names if name.lower() in accepted), None)) is not None:
        return column
    raise ConfigurationError.at(
        "data.labels",
        path,
        f" has no column {' or '.join(accepted)}; its first line is {printable(', '.join(names))}. Rename one.",
    )
