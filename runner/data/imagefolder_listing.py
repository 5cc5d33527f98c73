"""The image files of class folders, held in a few bytes each: a million paths as strings take 130 MB in every rank.

Strings would also be copied in each loader process, since counting a reference writes beside the string.
"""

import os
from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, islice
from pathlib import Path
from typing import Any

from manyheads.runner.data.left_out import NOTHING, LeftOut
from manyheads.runner.data.links import boundary, is_folder, opened, refuse_leaving

EXTENSIONS = (
    *(".jpg", ".jpeg", ".jpe", ".jfif", ".jif", ".png", ".ppm", ".pgm", ".pbm", ".pnm", ".bmp", ".dib"),
    *(".tif", ".tiff", ".webp", ".gif"),
)


def is_image(name: str) -> bool:
    """Whether a file of this name is taken for an image, by its ending."""
    return name.lower().endswith(EXTENSIONS)


@dataclass(frozen=True)
class ImageListing:
    """Files by their names below their class's folder, class by class, in torchvision's order.

    ``names``: the bytes of all names, without separators; ``ends``: where each name ends; ``counts``: how many files
    each class has. Both are arrays of 64 bits. ``inner``: the folders below those of the classes; ``left_out``: what
    is there besides images, and hidden.
    """

    names: bytes
    ends: array
    counts: array
    inner: tuple[str, ...] = ()
    left_out: LeftOut = NOTHING

    def __len__(self) -> int:
        return len(self.ends)

    def targets(self) -> array:
        """The class number of each file."""
        numbers = array("i")
        for number, count in enumerate(self.counts):
            numbers.extend(array("i", [number]) * count)
        return numbers


@dataclass(frozen=True)
class Paths(Sequence[str]):
    """The paths of a listing, each built on access. ``folder``: holds the class folders."""

    folder: Path
    classes: list[str]
    listing: ImageListing
    targets: array = field(repr=False)

    def __len__(self) -> int:
        return len(self.listing)

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return [self[position] for position in range(len(self))[index]]
        at, ends = range(len(self))[index], self.listing.ends
        name = os.fsdecode(self.listing.names[ends[at - 1] if at else 0 : ends[at]])
        return f"{self.folder}/{self.classes[self.targets[at]]}/{name}"


def scan(folders: Iterable[Path], *, root: Path) -> ImageListing:
    """The image files in these folders and in those below them, found by reading them.

    Raises ConfigurationError for a link that points outside ``root``.
    """
    names, ends, counts, within = bytearray(), array("Q"), array("Q"), boundary(root)
    inner, others = list[str](), NOTHING
    for folder in folders:
        contents = _contents(folder, within)
        in_order = sorted(contents, key=lambda inside: inside[:-1])  # as torchvision's, without the slash
        paths = [f"{inside}{name}" for inside in in_order for name in contents[inside][0]]
        joined = os.fsencode("\0".join(paths))  # name by name it takes longer than reading the folder
        lengths = map(len, joined.split(b"\0")) if paths else ()
        ends.extend(islice(accumulate(lengths, initial=len(names)), 1, None))
        names += joined.replace(b"\0", b"")
        counts.append(len(paths))
        inner += [f"{folder.name}/{inside}" for inside in in_order if inside]
        others += LeftOut.of(f"{folder.name}/{inside}{name}" for inside in contents for name in contents[inside][1])
    return ImageListing(bytes(names), ends, counts, tuple(inner), others)


def _contents(folder: Path, within: str | None) -> dict[str, tuple[list[str], list[str]]]:
    """The names of the images, sorted, and of what is left out, by folder: "" or "inner/", in a class's folder."""
    contents: dict[str, tuple[list[str], list[str]]] = {}
    waiting, read = [""], set[tuple[int, int]]()
    while waiting:
        inside = waiting.pop()
        images, others = contents[inside] = [], []
        with opened(folder / inside, within) as handle, os.scandir(handle) as entries:
            status = os.fstat(handle)
            if (inode := (status.st_dev, status.st_ino)) in read:  # a link to what was read
                continue
            read.add(inode)
            for entry in entries:
                name, has_ending = entry.name, is_image(entry.name)
                if has_ending and name[0] != "." and not entry.is_dir(follow_symlinks=False):
                    if entry.is_symlink():  # known from reading the folder
                        refuse_leaving(folder / inside / name, within)
                    images.append(name)
                elif name[0] != "." and is_folder(entry):
                    waiting.append(f"{inside}{name}/")
                elif name[0] != "." or has_ending or is_folder(entry):
                    others.append(name)
        images.sort()
    return contents
