"""data=custom: a data set class of the user's own, from any importable package."""

import inspect
from collections.abc import Callable
from functools import partial
from typing import Any

from manyheads.runner.data.data_option import HOW_TO_TEST, Data
from manyheads.runner.data.samples import Dataset
from manyheads.runner.errors import ConfigurationError
from manyheads.runner.option.locate import call


class Custom(Data):
    """Data of the user's class ``build``, called with split="train" and "val", and with "test" for trainer.test.

    The option's further keys are passed to it. uint8 images are scaled to 0..1, and normalized by the ``mean`` and
    ``std`` that the training samples declare; float images are used unchanged.
    """

    def __init__(self, build: Callable[..., Dataset], *, root: str | None, num_classes: int | None, **options: Any):
        if root is not None and "root" in inspect.signature(build).parameters:
            options["root"] = root
        self._target = target = f"{build.__module__}.{build.__qualname__}"
        self._test = partial(call, "data", target, build, split="test", **options)
        self._splits = {
            train: call("data", target, build, split="train" if train else "val", **options) for train in (True, False)
        }
        self.mean, self.std = (_declared(self._splits[True], *each) for each in (("mean", 0.0), ("std", 1.0)))
        classes = getattr(self._splits[True], "classes", None)
        self.num_classes = num_classes or getattr(self._splits[True], "num_classes", None) or (classes and len(classes))

    def split(self, *, train: bool) -> Dataset:
        return self._splits[train]

    def test(self) -> Dataset:
        try:
            return self._test()
        except ConfigurationError:
            raise
        except ValueError as error:
            raise ConfigurationError.at(
                "trainer.test",
                True,
                f': {self._target} has no samples for split="test": ValueError: {error}. {HOW_TO_TEST}',
            ) from error


def _declared(dataset: Dataset, name: str, default: float) -> tuple[float, ...]:
    """The number per channel that a data set declares."""
    value = getattr(dataset, name, None)
    if value is None or callable(value):
        return (default,)
    listed = value.tolist() if hasattr(value, "tolist") else value  # of an array or a tensor
    return tuple(listed) if isinstance(listed, (tuple, list)) else (listed,)
