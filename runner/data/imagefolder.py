"""data=imagefolder, imagenet: train/<class>/* and val/<class>/* image files, in the classic ImageNet recipe.

Source: https://github.com/pytorch/examples/tree/main/imagenet.
"""

import os
from pathlib import Path

from manyheads.runner.data.data_option import Data, DataOption
from manyheads.runner.data.imagefolder_index import EXTENSIONS, Paths, list_images
from manyheads.runner.data.links import boundary, opened
from manyheads.runner.data.samples import ImageFiles
from manyheads.runner.errors import ConfigurationError
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
            counts = list_images(root / split, train).counts  # the ranks will find it in the cache
            if empty := [name for name, count in zip(train, counts, strict=True) if not count]:
                raise ConfigurationError.at(
                    "data.root",
                    root,
                    f": the class folder {root / split / empty[0]} holds no images. Fill it, or "
                    f"remove it from {' and '.join(f'{each}/' for each in splits)}. Allowed: "
                    f"{', '.join(EXTENSIONS)}.",
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
    within = boundary(folder.parent)
    with opened(folder, within) as handle, os.scandir(handle) as entries:
        names = sorted(entry.name for entry in entries if entry.is_dir())
    if not names:
        raise ConfigurationError.at("data.root", folder.parent, f": {folder} holds no class folders.")
    return names
