"""Images in files, for options that find them in folders, archives or tables."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from manyheads.runner.data.partition import ChosenSamples, Partition
from manyheads.runner.data.samples import Dataset, Files


@dataclass(frozen=True)
class ImageFiles(Files):
    """Image files, decoded on demand and cropped to squares of ``image_size`` pixels per side.

    ``paths``: the files' paths, or their contents; ``targets``: their class numbers. ``train``: crops are random, and
    flipped half of the time. ``classes``: class names. ``train_size``: size of the square in training, if different;
    ``resize``: of the shorter side before the center crop of an evaluation, None for 256/224 of the square. ``within``:
    the boundary that files must be in (``links.boundary``), None for any place.
    """

    paths: "Sequence[str | bytes]"
    targets: Sequence[int]
    image_size: int
    train: bool
    classes: Sequence[str] | None = None
    train_size: int | None = None
    resize: int | None = None
    within: str | None = None

    def read(self) -> Dataset:
        from manyheads.runner.data.rank.photos import Photos  # imports torchvision, which is slow

        return Photos(
            self.paths,
            self.targets,
            image_size=(self.train_size if self.train else None) or self.image_size,
            train=self.train,
            classes=self.classes,
            resize=self.resize,
            within=self.within,
        )

    def chosen(self, partition: Partition, *, train: bool) -> "ImageFiles":
        chosen = partition.indices(len(self.paths), train=train)
        paths, targets = ChosenSamples(self.paths, chosen), ChosenSamples(self.targets, chosen)
        return replace(self, paths=paths, targets=targets, train=train)
