"""data=custom: a data set class of the user's own, from any importable package."""

import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any

from torch.utils.data import IterableDataset

from manyheads.runner.data.data_option import HOW_TO_TEST, Data, DataOption, NamedSplits
from manyheads.runner.data.partition import KEYS
from manyheads.runner.data.rank.build_data import LOADING
from manyheads.runner.data.rank.rng import GENERATORS, restored
from manyheads.runner.data.rank.splits import TRANSFORMS
from manyheads.runner.data.samples import Dataset
from manyheads.runner.errors import ConfigurationError
from manyheads.runner.option.locate import call, combined, load, refuse_unfit, signature
from manyheads.runner.option.tree import OPTION, TARGET

ABSENT = (ValueError, KeyError, AssertionError, NotImplementedError)  # what a class raises for a split that it lacks


def refuse_without_split(target: str, build: Callable[..., Any]) -> None:
    """Raises ConfigurationError for a class, or a function, without the argument ``split``."""
    if not any(p.name == "split" or p.kind is p.VAR_KEYWORD for p in signature(build).parameters.values()):
        rest = " does not take split. It is created with split='train' and with split='val': add that argument."
        raise ConfigurationError.at("data._target_", target, rest)


def check_custom(option: DataOption) -> None:
    """Raises ConfigurationError unless the user's class accepts its keys, without calling it, as it may read files."""
    kind = option.kind
    if isinstance(kind, type) and issubclass(kind, Data):
        return
    others = (TARGET, OPTION, "name", "num_classes", "root", *LOADING, *KEYS, *TRANSFORMS)
    arguments = {key: value for key, value in option.section.items() if key not in others}
    if option.root is not None and "root" in signature(kind).parameters:
        arguments["root"] = option.root
    refuse_without_split(option.target, kind)
    refuse_unfit("data", option.target, kind, **combined("data", arguments, {"split": "train"}))


def is_stream(samples: Any) -> bool:
    """Whether samples come one after another, and have no numbers."""
    return isinstance(samples, IterableDataset) or not (hasattr(samples, "__getitem__") and hasattr(samples, "__len__"))


class Custom(NamedSplits):
    """Data of the user's class ``build``, called with split="train" and "val", and with "test" for trainer.test.

    The option's further keys are passed to it. uint8 images are scaled to 0..1, and normalized by the ``mean`` and
    ``std`` that the training samples declare; float images are used unchanged. ``splits``: those to build at
    once; others are built when they are used. ``streaming``: arguments of Stream for samples without numbers, None if
    they must have some.
    """

    numbers_classes = False

    def __init__(
        self,
        build: Callable[..., Dataset],
        splits: Sequence[str],
        streaming: Mapping[str, Any] | None = None,
        /,
        *,
        root: str | None,
        num_classes: int | None,
        **options: Any,
    ):
        if root is not None and "root" in inspect.signature(build).parameters:
            options["root"] = root
        self._target = f"{build.__module__}.{build.__qualname__}"
        refuse_without_split(self._target, build)
        self._build, self._options, self._splits = build, options, dict[str, Dataset]()
        self.streaming = streaming
        for split in splits:
            self.samples(split)
        train = self.samples("train")
        self.mean, self.std = (_declared(train, *statistic) for statistic in (("mean", 0.0), ("std", 1.0)))
        classes = getattr(train, "classes", None)
        self.num_classes = num_classes or getattr(train, "num_classes", None) or (classes and len(classes))

    @cached_property
    def num_inputs(self) -> int | None:  # type: ignore[override]
        """Numbers in a sample: those that the class declares, otherwise those of the first sample's first entry."""
        train = self.samples("train")
        if (declared := getattr(train, "num_inputs", None)) is not None or self.streaming is not None:
            return declared
        with restored(GENERATORS):  # for a class that draws from them
            sample = train[0]
        shape = getattr(sample[0], "shape", None) if isinstance(sample, (tuple, list)) else None
        return None if shape is None else math.prod(shape)

    def samples(self, split: str) -> Dataset:
        """The samples of a split. Raises ConfigurationError if the class says that it has none for an evaluation."""
        if split not in self._splits:
            options = combined("data", self._options, {"split": split})
            try:
                self._splits[split] = self._read_in_order(call("data", self._target, self._build, **options), split)
            except ABSENT as error:
                if split == "train" or isinstance(error, ConfigurationError):
                    raise
                key, value = ("trainer.test", True) if split == "test" else ("data.val_fraction", None)
                says = f'{self._target} has no samples for split="{split}": {type(error).__name__}: {error}.'
                raise ConfigurationError.at(key, value, f": {says} {HOW_TO_TEST}") from error
        return self._splits[split]

    def _read_in_order(self, samples: Any, split: str) -> Dataset:
        """The samples of a split, by number. Raises ConfigurationError for those without one if data.order needs it."""
        if not is_stream(samples):
            if self.streaming is not None and split == "train":
                raise ConfigurationError.at(
                    "data.order", "stream", ": the training samples have numbers. Set it to auto to shuffle them."
                )
            return samples
        if self.streaming is None:
            kind = "an IterableDataset" if isinstance(samples, IterableDataset) else f"a {type(samples).__name__}"
            raise ConfigurationError.at(
                "data._target_",
                self._target,
                f" gives {kind}, whose samples have no numbers by which they could be shuffled. Set data.order=stream "
                "to take them as they come, or give the class __len__ and __getitem__.",
            )
        if not hasattr(samples, "__iter__"):
            raise ConfigurationError.at("data._target_", self._target, " gives samples without __iter__.")
        build_stream = load("manyheads.runner.data.rank.streams.parts.build_stream")
        return build_stream(samples, **self.streaming, is_train=split == "train", name=self._target)


def _declared(dataset: Dataset, name: str, default: float) -> tuple[float, ...]:
    """The number per channel that a data set declares."""
    value = getattr(dataset, name, None)
    if value is None or callable(value):
        return (default,)
    listed = value.tolist() if hasattr(value, "tolist") else value  # of an array or a tensor
    return tuple(listed) if isinstance(listed, (tuple, list)) else (listed,)
