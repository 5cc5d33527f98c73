"""data=shapes, shapes_multilabel: drawn discs, squares and triangles; generated from a seed, nothing is downloaded."""

from typing import TYPE_CHECKING, ClassVar

from manyheads.runner.data.data_option import DataOption, NamedSplits
from manyheads.runner.data.samples import ImageArrays
from manyheads.runner.option.rules import whole

if TYPE_CHECKING:
    import numpy as np

KINDS = ("disc", "square", "triangle")
MOST = 3  # shapes in an image


class ShapesOption(DataOption):
    """Declares images that are generated in memory."""

    rules: ClassVar = {"train_samples": whole(1), "val_samples": whole(1), "image_size": whole(8)}


class Shapes(NamedSplits):
    """(3, image_size, image_size) uint8 images of up to three shapes in any colours, under noise.

    Targets are masks (image_size, image_size): 0 for the background, 1 to 3 for the kinds, 255 for a shape's edge.
    """

    classes: tuple[str, ...] = ("background", *KINDS)
    num_classes = len(classes)

    def __init__(self, *, image_size: int, train_samples: int, val_samples: int):
        self.image_size = image_size
        self.counts = {"train": train_samples, "val": val_samples, "test": val_samples}

    def samples(self, split: str) -> ImageArrays:
        images, masks = drawn(self.counts[split], self.image_size, seed=("train", "val", "test").index(split))
        return ImageArrays(images, self.targets(masks), self.image_size, classes=self.classes)

    def targets(self, masks: "np.ndarray") -> "np.ndarray":
        """The targets of images. ``masks``: the class of each pixel, (N, H, W)."""
        return masks


class ShapesMultilabel(Shapes):
    """The images of ``Shapes``, with targets (3,) that say which kinds occur."""

    classes = KINDS
    num_classes = len(KINDS)

    def targets(self, masks: "np.ndarray") -> "np.ndarray":
        import numpy as np

        return np.stack([(masks == kind).any((1, 2)) for kind in range(1, len(KINDS) + 1)], 1).astype(np.int64)


def drawn(count: int, size: int, *, seed: int) -> "tuple[np.ndarray, np.ndarray]":
    """Images (count, 3, size, size) and masks (count, size, size), both uint8."""
    import numpy as np

    draw = np.random.RandomState([7, seed])
    images = draw.randint(0, 80, (count, 3, size, size)).astype(np.int16)
    masks = np.zeros((count, size, size), np.uint8)
    rows, columns = np.mgrid[:size, :size]
    for image, mask in zip(images, masks, strict=True):
        for _ in range(draw.randint(0, MOST + 1)):
            kind, reach = draw.randint(len(KINDS)), draw.uniform(size / 10, size / 4)
            y, x = draw.uniform(reach, size - reach, 2)
            distance = _distance(KINDS[kind], rows - y, columns - x)
            inside = distance <= reach
            image[:, inside] = draw.randint(100, 256, (3, 1)) + draw.randint(-20, 21, (3, inside.sum()))
            mask[inside] = kind + 1
            mask[(distance > reach) & (distance <= reach + 1)] = 255
    return images.clip(0, 255).astype(np.uint8), masks


def _distance(kind: str, down: "np.ndarray", right: "np.ndarray") -> "np.ndarray":
    """Distances from a shape's center, in a metric in which the shape is a ball."""
    import numpy as np

    if kind == "disc":
        return np.hypot(down, right)
    if kind == "square":
        return np.maximum(abs(down), abs(right))
    return np.maximum(down, 2 * abs(right) - down - 0.5)  # a triangle that stands on its base
