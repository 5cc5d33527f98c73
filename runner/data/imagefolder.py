"""data=imagefolder, imagenet: train/<class>/* and val/<class>/* image files, in the classic ImageNet recipe.

Source: https://github.com/pytorch/examples/tree/main/imagenet.
"""

import os
from pathlib import Path

from manyheads.runner.data.data_option import Data, DataOption
from manyheads.runner.data.image_files import ImageFiles
from manyheads.runner.data.imagefolder_index import list_images
from manyheads.runner.data.imagefolder_listing import EXTENSIONS, ImageListing, Paths
from manyheads.runner.data.left_out import LeftOut
from manyheads.runner.data.links import boundary, opened
from manyheads.runner.errors import ConfigurationError, printable
from manyheads.runner.option.run_config import RunConfig

SPLITS = {True: "train", False: "val"}


class ImageFolderOption(DataOption):
    """Checks that all splits that a run uses have images in the same classes."""

    imports = ("manyheads.runner.data.rank.photos",)
    root: str
    image_size: int
    val_resize: int | None

    def check_keys(self) -> None:
        super().check_keys()
        if (resize := self.val_resize) is not None and resize < self.image_size:
            raise ConfigurationError.at(
                "data.val_resize",
                resize,
                f" is less than data.image_size={self.image_size}, the size of "
                "the center crop. Raise it, or set it to null.",
            )

    def check_run(self, run: RunConfig) -> None:
        root = Path(self.root)
        train = class_names(root / "train")
        is_drawn = self.partition is not None
        tests = run.trainer.test
        splits = ["train", *(["val"] if tests or not is_drawn else []), *(["test"] if tests and not is_drawn else [])]
        for split in splits[1:]:
            if differing := sorted({*train} ^ {*class_names(root / split)}):
                raise ConfigurationError.at(
                    "data.root",
                    root,
                    f": train/ and {split}/ must hold the same class folders, but differ in {', '.join(differing)}.",
                )
        for split in splits:
            listing = list_images(root / split, train)  # the ranks will find it in the cache
            if empty := [name for name, count in zip(train, listing.counts, strict=True) if not count]:
                raise ConfigurationError.at(
                    "data.root",
                    root,
                    f": the class folder {root / split / empty[0]} holds no images. Fill it, or "
                    f"remove it from {' and '.join(f'{name}/' for name in splits)}. Allowed: "
                    f"{', '.join(EXTENSIONS)}.",
                )
            self._say_left_out(root / split, listing)

    def _say_left_out(self, folder: Path, listing: ImageListing) -> None:
        beside = LeftOut.of(name for name, is_class in _entries(folder) if not is_class)
        (beside + listing.left_out).warn(
            "file or folder",
            f" in {printable(folder)}. Images are files in class folders, or in folders below those, that "
            f"are not hidden and end in {', '.join(EXTENSIONS)}; there are {len(listing):,}.",
            many="files or folders",
        )

    def sources(self) -> dict[str, Path]:
        return {split: Path(self.root) / split for split in SPLITS.values()}


class ImageFolder(Data):
    """A class for each folder below ``root``/train, in alphabetical order; val must have the same."""

    mean = (0.485, 0.456, 0.406)
    std = (0.229, 0.224, 0.225)

    def __init__(
        self, *, root: str, image_size: int, train_image_size: int | None = None, val_resize: int | None = None
    ):
        self.root, self.image_size = Path(root), image_size
        self.train_size, self.resize = train_image_size, val_resize
        self.classes = class_names(self.root / "train")
        self.num_classes = len(self.classes)

    def split(self, *, train: bool) -> ImageFiles:
        return self._files(SPLITS[train], train=train)

    def test(self) -> ImageFiles:
        return self._files("test", train=False)

    def _files(self, split: str, *, train: bool) -> ImageFiles:
        folder = self.root / split
        listing = list_images(folder, self.classes)
        targets = listing.targets()
        paths = Paths(folder, self.classes, listing, targets)
        return ImageFiles(
            paths,
            targets,
            self.image_size,
            train,
            self.classes,
            train_size=self.train_size,
            resize=self.resize,
            within=boundary(self.root),
        )


def class_names(folder: Path) -> list[str]:
    """The class folders below ``folder``. Raises ConfigurationError if there are none."""
    if not folder.is_dir():
        raise ConfigurationError.at(
            "data.root",
            folder.parent,
            f": the folder {folder} does not exist. Expected: {folder.name}/<class>/<images>. "
            "Set data.root to the folder that holds train/ and val/.",
        )
    names = [name for name, is_class in _entries(folder) if is_class]
    if not names:
        raise ConfigurationError.at("data.root", folder.parent, f": {folder} holds no class folders.")
    return names


def _entries(folder: Path) -> list[tuple[str, bool]]:
    """The names in the folder of a split, in order, and whether each is a class: a folder that is not hidden.

    Hidden files are not among them.
    """
    with opened(folder, boundary(folder.parent)) as handle, os.scandir(handle) as entries:
        contents = [(entry.name, entry.is_dir()) for entry in entries]
    return sorted((name, is_folder and name[0] != ".") for name, is_folder in contents if is_folder or name[0] != ".")
