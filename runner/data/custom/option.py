"""data=custom: a data set class of the user's own, from any importable package."""

import inspect
from collections.abc import Callable
from typing import Any

from manyheads.runner.data.base.option import Data, Dataset
from manyheads.runner.run.errors import ConfigurationError
from manyheads.runner.run.locate import call


class Custom(Data):
    """``build`` is the user's class; it is called with split="train" and split="val", and the option's further keys.

    uint8 images are scaled to 0..1; float images are taken as they are.
    """

    mean = (0.0,)
    std = (1.0,)

    def __init__(self, build: Callable[..., Dataset], *, root: str | None, num_classes: int | None, **options: Any):
        if root is not None and "root" in inspect.signature(build).parameters:
            options["root"] = root
        target = f"{build.__module__}.{build.__qualname__}"
        self._splits = {
            train: call("data", target, build, split="train" if train else "val", **options) for train in (True, False)
        }
        classes = getattr(self._splits[True], "classes", None)
        count = num_classes or getattr(self._splits[True], "num_classes", None) or (classes and len(classes))
        if not isinstance(count, int):
            raise ConfigurationError("data.num_classes is not set, and the data set has no num_classes. Set it.")
        self.num_classes = count

    def split(self, *, train: bool) -> Dataset:
        return self._splits[train]
