"""data=imagefolder, imagenet: train/<class>/* and val/<class>/* image files, in the classic ImageNet recipe.

Source: https://github.com/pytorch/examples/tree/main/imagenet.
"""

import os
from array import array
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

from manyheads.runner.data.data_option import DataOption, NamedSplits
from manyheads.runner.data.imagefolder_index import list_images
from manyheads.runner.data.imagefolder_listing import EXTENSIONS, ImageListing, Paths, is_image
from manyheads.runner.data.labelled_images import SPLIT, labelled_images
from manyheads.runner.data.left_out import LeftOut
from manyheads.runner.data.links import boundary, is_folder, nearest_path, opened
from manyheads.runner.data.samples import ImageFiles
from manyheads.runner.errors import ConfigurationError, printable
from manyheads.runner.option.rules import PATH
from manyheads.runner.option.run_config import RunConfig
from manyheads.runner.option.tree import Section
from manyheads.runner.wording import counted


class ImageFolderOption(DataOption):
    """Checks that all splits that a run uses have images in the same classes."""

    imports = ("manyheads.runner.data.rank.photos",)
    rules: ClassVar = {"labels": PATH}
    root: str
    labels: str | None = None
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

    def resolved_keys(self) -> Section:
        return {**super().resolved_keys(), **self._local("labels")}

    def _check_labels(self, labels: str, needed: list[str]) -> None:
        """Raises ConfigurationError for a CSV file that does not fit, or lacks a split that the run needs."""
        splits = {image.split for image in labelled_images(labels, Path(self.root))}
        if missing := sorted({*needed} - splits):
            raise ConfigurationError.at(
                "data.labels",
                labels,
                f" has no rows whose column {SPLIT} is {' or '.join(missing)}. Add them, or set data.val_fraction, for "
                "example to 0.2.",
            )

    def own_validation(self) -> bool:
        root = Path(self.root)
        if self.labels is not None:
            return any(image.split == "val" for image in labelled_images(self.labels, root))
        if (root / "test").is_dir() and not (root / "val").is_dir():
            raise ConfigurationError.at(
                "data.root",
                root,
                f": it holds train/ and test/, but no val/. Set data.root to {printable(root)}/test or "
                f"{printable(root)}/train, whichever is to be measured.",
            )
        return (root / "val").is_dir()

    def check_run(self, run: RunConfig) -> None:
        is_drawn, tests = self.partition is not None, run.trainer.test
        splits = ["train", *(["val"] if tests or not is_drawn else []), *(["test"] if tests and not is_drawn else [])]
        if self.labels is not None:
            self._check_labels(self.labels, splits)
            return
        root = Path(self.root)
        train = class_names(folder_of(root, "train"), root)
        if run.task.name == "classification" and not run.trainer.evaluate_only:
            _refuse_single(train, root)
        if is_undivided(root) and (tests or not is_drawn):
            key, value = ("trainer.test", True) if is_drawn else ("data.val_fraction", None)
            raise ConfigurationError.at(
                key,
                value,
                f": {printable(root)} holds the classes {printable(', '.join(train[:3]))}, ... and no train/, so "
                + ("it has no photos for a test." if is_drawn else "set data.val_fraction, for example to 0.2."),
            )
        for split in splits[1:]:
            if differing := sorted({*train} ^ {*class_names(root / split, root)}):
                raise ConfigurationError.at(
                    "data.root",
                    root,
                    f": train/ and {split}/ must hold the same class folders, but differ in {', '.join(differing)}.",
                )
        for split in splits:
            folder = folder_of(root, split)
            listing = list_images(folder, train, root)  # the ranks will find it in the cache
            if empty := [name for name, count in zip(train, listing.counts, strict=True) if not count]:
                raise ConfigurationError.at(
                    "data.root",
                    root,
                    f": the class folder {folder / empty[0]} holds no images. Fill it, or "
                    f"remove it from {' and '.join(f'{name}/' for name in splits)}. Allowed: "
                    f"{', '.join(EXTENSIONS)}.",
                )
            self._say_left_out(folder, listing)

    def _say_left_out(self, folder: Path, listing: ImageListing) -> None:
        beside = LeftOut.of(name for name, is_class in _entries(folder, Path(self.root)) if not is_class)
        (beside + listing.left_out).warn(
            "file or folder",
            f" in {printable(folder)}. Images are files in class folders, or in folders below those, that "
            f"are not hidden and end in {', '.join(EXTENSIONS)}; there are {len(listing):,}.",
            many="files or folders",
        )

    def sources(self) -> dict[str, Path]:
        root = Path(self.root)
        if self.labels is not None:
            return {"labels": Path(self.labels), "images": root}
        return {split: folder_of(root, split) for split in (("train",) if is_undivided(root) else ("train", "val"))}


class ImageFolder(NamedSplits):
    """A class for each folder below ``root``/train, in alphabetical order; val must have the same.

    ``labels``: a CSV file of the images' names below ``root`` and their classes, instead of folders of classes.
    """

    mean = (0.485, 0.456, 0.406)
    std = (0.229, 0.224, 0.225)

    def __init__(
        self,
        *,
        root: str,
        image_size: int,
        train_image_size: int | None = None,
        val_resize: int | None = None,
        labels: str | None = None,
    ):
        self.labels = labelled_images(labels, Path(root)) if labels else []
        self.root, self.image_size = Path(root), image_size
        self.train_size, self.resize = train_image_size, val_resize
        self.classes = sorted({i.label for i in self.labels}) or class_names(folder_of(self.root, "train"), self.root)
        self.num_classes = len(self.classes)

    def samples(self, split: str) -> ImageFiles:
        paths: Sequence[str]
        if self.labels:
            images = [image for image in self.labels if image.split == split]
            paths = [str(self.root / image.file) for image in images]
            targets = array("i", [self.classes.index(image.label) for image in images])
        else:
            folder = folder_of(self.root, split)
            listing = list_images(folder, self.classes, self.root)
            targets = listing.targets()
            paths = Paths(folder, self.classes, listing, targets)
        return ImageFiles(
            paths,
            targets,
            self.image_size,
            split == "train",
            self.classes,
            train_size=self.train_size,
            resize=self.resize,
            within=boundary(self.root),
        )


def is_undivided(root: Path) -> bool:
    """Whether the folder holds classes, not splits of them."""
    if not root.is_dir() or (root / "train").exists():
        return False
    names = {name for name, is_folder in _entries(root, root) if is_folder}
    return bool(names) and not names & {"val", "test"}


def folder_of(root: Path, split: str) -> Path:
    """The folder of a split's classes."""
    return root if is_undivided(root) else root / split


def class_names(folder: Path, root: Path | None = None) -> list[str]:
    """The class folders below ``folder``, which is ``root`` or in it, None for the folder that contains it.

    Raises ConfigurationError if there are none.
    """
    if not folder.is_dir():
        parent = root or folder.parent
        if not parent.is_dir():
            reason = f": there is no such folder.{nearest_path(parent)}"
        elif images := [name for name, is_class in _entries(parent, parent) if not is_class and is_image(name)]:
            count = counted(len(images), "image")
            reason = f" holds {count} and no class folders. If it is a class, set data.root to {parent.parent}."
        else:
            reason = f": the folder {folder} does not exist."
        raise ConfigurationError.at(
            "data.root",
            parent,
            f"{reason} Expected: {folder.name}/<class>/<images>. Set data.root to the folder that holds train/ and "
            "val/, or class folders.",
        )
    names = [name for name, is_class in _entries(folder, root) if is_class]
    if not names:
        raise ConfigurationError.at("data.root", root or folder.parent, f": {folder} holds no class folders.")
    return names


def _refuse_single(names: list[str], root: Path) -> None:
    if len(names) == 1:
        raise ConfigurationError.at(
            "data.root",
            root,
            f": {printable(names[0])} is the only class, and there is nothing to tell it from. Set data.root to "
            f"the folder that holds the folders of all classes, such as {printable(root.parent)}.",
        )


def _entries(folder: Path, root: Path | None) -> list[tuple[str, bool]]:
    """The names in the folder of a split, in order, and whether each is a class: a folder that is not hidden.

    Hidden files are not among them.
    """
    with opened(folder, boundary(root or folder.parent)) as handle, os.scandir(handle) as entries:
        contents = [(entry.name, is_folder(entry)) for entry in entries]
    return sorted((name, is_folder and name[0] != ".") for name, is_folder in contents if is_folder or name[0] != ".")
