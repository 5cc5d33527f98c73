"""The image files of class folders, held in a few bytes each: a million paths as strings take 130 MB in every rank.

Strings would also be copied in each loader process, since counting a reference writes beside the string.
"""

import os
from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, islice
from pathlib import Path
from typing import overload

from manyheads.runner.data.base.links import refuse_leaving

EXTENSIONS = (".jpg", ".jpeg", ".png", ".ppm", ".bmp", ".pgm", ".tif", ".tiff", ".webp")


@dataclass(frozen=True)
class Listing:
    """File names, class by class, and in each in their order. ``names``: the bytes of all, end to end.

    ``ends``: where each name ends; ``counts``: how many files each class has. Both are arrays of 64 bits.
    """

    names: bytes
    ends: array
    counts: array

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
    """A listing's paths, each made when it is asked for. ``folder`` holds the class folders."""

    folder: Path
    classes: list[str]
    listing: Listing
    targets: array = field(repr=False)

    def __len__(self) -> int:
        return len(self.listing)

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> list[str]: ...
    def __getitem__(self, index: int | slice) -> str | list[str]:
        if isinstance(index, slice):
            return [self[each] for each in range(len(self))[index]]
        at = range(len(self))[index]
        ends = self.listing.ends
        name = os.fsdecode(self.listing.names[ends[at - 1] if at else 0 : ends[at]])
        return f"{self.folder}/{self.classes[self.targets[at]]}/{name}"


def scan(folders: Iterable[Path], *, root: Path) -> Listing:
    """The image files directly in these folders, found by reading them.

    Raises ConfigurationError for a link that leads out of ``root``.
    """
    names, ends, counts = bytearray(), array("Q"), array("Q")
    for folder in folders:
        with os.scandir(folder) as entries:
            images = [entry for entry in entries if entry.name.lower().endswith(EXTENSIONS)]
        for entry in images:
            if entry.is_symlink():  # known from reading the folder
                refuse_leaving(root, entry.path)
        found = sorted(entry.name for entry in images)
        joined = os.fsencode("\0".join(found))  # name by name it takes longer than reading the folder
        lengths = map(len, joined.split(b"\0")) if found else ()
        ends.extend(islice(accumulate(lengths, initial=len(names)), 1, None))
        names += joined.replace(b"\0", b"")
        counts.append(len(found))
    return Listing(bytes(names), ends, counts)
