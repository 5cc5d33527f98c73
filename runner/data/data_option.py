"""Declarations of data options, and the base class of what provides their samples. Imports no torch."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, ClassVar, NamedTuple

from manyheads.runner.data.partition import ALL, KEYS, Partition
from manyheads.runner.data.samples import Samples
from manyheads.runner.errors import ConfigurationError
from manyheads.runner.option.option import Option
from manyheads.runner.option.rules import (
    AUTO,
    BOOLEAN,
    DATA,
    PATH,
    KeyKind,
    Rule,
    Tunable,
    choice,
    either,
    number,
    powers_of_two,
    whole,
)
from manyheads.runner.option.run_config import RunConfig
from manyheads.runner.option.tree import Section
from manyheads.runner.run.objects import Address, is_address
from manyheads.runner.run.run_folder import RunFolder

OBJECTS = Rule(
    "a list, each {_target_: <class>, ...}",
    lambda v: isinstance(v, list) and all(isinstance(config, dict) and "_target_" in config for config in v),
    {"type": "array", "items": {"type": "object", "required": ["_target_"]}},
    KeyKind.OBJECT,
)
OBJECT = Rule(
    "{_target_: <class>, ...}",
    lambda v: isinstance(v, dict) and "_target_" in v,
    {"type": "object", "required": ["_target_"]},
    KeyKind.OBJECT,
)
SAMPLERS = {
    "balanced": "manyheads.runner.data.rank.sampling.samplers.Balanced",
    "weighted": "manyheads.runner.data.rank.sampling.samplers.Weighted",
    "per_class": "manyheads.runner.data.rank.sampling.samplers.PerClass",
    "by_length": "manyheads.runner.data.rank.sampling.samplers.ByLength",
}
DOWNLOAD = BOOLEAN.of_kind(KeyKind.PLACE)


class ObjectListing(NamedTuple):
    """Stored objects with their names and sizes in bytes. ``digest``: changes with the content of any of them."""

    objects: list[tuple[str, int]]
    digest: str


def _workers(run: RunConfig) -> Sequence[int] | str:
    if run.data.on_device:
        return "the images are in the device's memory, and batches are made there"
    return [0, *powers_of_two(min(run.data.most_workers, run.launcher.cores_for_each(on_gpus=run.on_gpus)))]


def _on_device(run: RunConfig) -> Sequence[bool] | str:
    if run.data.transform or run.data.val_transform:
        return "data.transform and data.val_transform need samples in the host's memory"
    return [True]


class DataOption(Option):
    """Declarations of a data option. It is checked last, so ``check_keys`` may look for files below ``root``.

    ``most_workers``: number of loader processes per rank beyond which there is no gain; 0 for samples in memory.
    ``repeating``: the key that repeats a run on other samples of the same data, whose results are averaged.
    ``reads_storage``: whether ``root`` may be in object storage.
    """

    group = "data"
    derived = ("num_workers",)
    without_effect: ClassVar[tuple[str, ...]] = ("root", "num_workers", "fingerprint")
    tunable: ClassVar = {
        "num_workers": Tunable(DATA, _workers),
        "on_device": Tunable(DATA, _on_device, needs={"data.num_workers": 0}),
    }
    most_workers: ClassVar[int] = 16
    repeating: ClassVar[str] = "fold"
    reads_storage: ClassVar[bool] = False
    rules: ClassVar = {
        "root": PATH,
        "image_size": whole(1),
        "train_image_size": whole(1),
        "val_resize": whole(1),
        "num_classes": whole(1),
        "augment": choice("none", "crop_flip"),
        "shift": whole(0),
        "padding": choice("zeros", "reflect"),
        "flip": choice("none", "random", "alternating"),
        "batch_size": whole(1),
        "num_workers": either(whole(0), AUTO),
        "on_device": BOOLEAN,
        "order": choice("auto", "shuffle", "feistel", "blocks", "stream"),
        "epoch_samples": whole(1),
        "order_block": whole(1),
        "order_window": whole(1),
        "sampler": either(choice(*SAMPLERS), OBJECT),
        "on_corrupt": choice("error", "skip"),
        "fingerprint": choice("sizes", "contents", "none"),
        "val_fraction": either(number(above=0, below=1), whole(ALL, ALL)),
        "folds": whole(2),
        "fold": whole(0),
        "split_seed": whole(0),
        "transform": OBJECTS,
        "val_transform": OBJECTS,
        "tokenizer": OBJECT,
    }
    batch_size: int
    num_workers: int  # "auto" until it is resolved
    drop_last: bool
    root: str | None = None
    image_size: int | None = None
    shift: int | None = None
    num_classes: int | None = None
    on_device: bool = False
    order: str = "shuffle"
    order_block: int | None = None
    order_window: int | None = None
    sampler: str | Mapping[str, Any] | None = None
    epoch_samples: int | None = None
    on_corrupt: str = "error"  # images in memory are never corrupt
    fingerprint: str = "none"  # for options that read no files
    val_fraction: float | None = None
    folds: int | None = None
    fold: int | None = None
    split_seed: int = 0
    transform: Sequence[Any] = ()
    val_transform: Sequence[Any] = ()

    @property
    def draws(self) -> bool:
        """Whether validation samples can be drawn from the training samples; text, for one, has other keys for that."""
        return "folds" in self.section

    @property
    def partition(self) -> Partition | None:
        """How validation samples are drawn from those for training; None for the option's own splits.

        Raises ConfigurationError for keys that contradict each other.
        """
        if not self.draws:
            return None
        return Partition.of(self.val_fraction, folds=self.folds, fold=self.fold, seed=self.split_seed)

    @property
    def draws_validation(self) -> bool:
        """Whether validation samples are taken from the training samples: which ones depends on their number."""
        return self.partition is not None or self.val_fraction is not None

    @property
    def without_classes(self) -> str:
        """The error for data without classes whose number a model needs."""
        if "num_classes" in self.section:
            return "data.num_classes is not set, and the data set has no num_classes. Set it."
        return (
            f"data={self.name} has no classes, and the model needs its number of outputs. Set model.num_classes (1 for "
            "a single value), or choose another model, such as model=mlp."
        )

    def task(self) -> str | None:
        """The task that task=auto stands for; None if the data does not say. Raises ConfigurationError."""
        return None

    def resolved_keys(self) -> Section:
        return {"root": self._absolute(self.root)} if self.root else {}

    def resolved(self, run: RunConfig) -> RunConfig:
        run = super().resolved(run)
        if run.trainer.evaluate_only:
            run = run.changed(data=run.data.evaluated(run.checkpoint.load))
        elif self.val_fraction == ALL:
            raise ConfigurationError.at(
                "data.val_fraction",
                self.val_fraction,
                " leaves no sample to train on. Lower it: all samples are for evaluations of trained weights.",
            )
        if self.section["num_workers"] != "auto":
            return run
        cores = run.launcher.cores_for_each(on_gpus=run.on_gpus)
        workers = max(cores - 1, min(cores, 2))  # a core is left for the rank itself, if there are several
        return run.changed(data={"num_workers": 0 if self.on_device else min(self.most_workers, workers)})

    def check_keys(self) -> None:
        if self.target.startswith("manyheads."):
            _ = self.kind  # which imports no torch: a class that does not exist is refused at once
        _ = self.partition
        if self.order == "blocks" and self.order_block is None:
            why = f": data={self.name} is in memory, where neighbours are not read together. Set shuffle or feistel."
            raise ConfigurationError.at("data.order", self.order, why, allowed=["auto", "shuffle", "feistel"])
        if self.sampler is not None and self.order != "auto":
            why = ": data.sampler decides the order. Set data.order=auto, or data.sampler=null."
            raise ConfigurationError.at("data.order", self.order, why)
        if self.order == "stream":
            self._refuse_numbers()
        if self.on_device:
            self._refuse_host()
        if self.shift is not None and self.image_size is not None and self.shift >= self.image_size:
            why = f" would move images of data.image_size={self.image_size} out of sight. Lower it, or set it to null, "
            raise ConfigurationError.at("data.shift", self.shift, f"{why}an eighth of a side.")

    def evaluated(self, weights: str | None) -> Section:
        """Keys of an evaluation of other data than the run of ``weights`` had: all, or its own validation samples.

        Empty if other keys than the run's select samples, or only the ranks can tell. Raises ConfigurationError.
        """
        origin, now = RunFolder.of_checkpoint(Path(weights or "").expanduser().absolute()), self.section
        if weights is None or "folds" not in now or not origin.config.exists():
            return {}
        before = origin.read_config()["data"]
        is_same = all(now.get(key) == before.get(key) for key in ("root", "labels"))
        if is_same or any(now[key] not in (None, before.get(key)) for key in KEYS):
            return {}
        if (has_own := self.own_validation()) is None:
            return {}
        return {"val_fraction": None if has_own else ALL, "folds": None, "fold": None}

    def own_validation(self) -> bool | None:
        """Whether there are validation samples; None if only ranks can tell. Raises ConfigurationError if unclear."""
        return None

    def _refuse_host(self) -> None:
        """Raises ConfigurationError for settings that need batches in the host's memory."""
        if self.num_workers != 0:
            why = ": with data.on_device=true no loader process has the images. Set it to 0."
            raise ConfigurationError.at("data.num_workers", self.num_workers, why)
        if given := next((key for key in ("transform", "val_transform") if getattr(self, key)), None):
            why = f"data.{given} needs single samples in the host's memory. Set it to [], or set data.on_device=false."
            raise ConfigurationError(why, key=f"data.{given}")

    def _refuse_numbers(self) -> None:
        """Raises ConfigurationError for a stream of data that has none, and for settings that need numbered samples."""
        if "epoch_samples" not in self.section:
            others = ["auto", "shuffle", "feistel"] + ["blocks"] * (self.order_block is not None)
            raise ConfigurationError.at(
                "data.order", self.order, f": the samples of data={self.name} have numbers.", allowed=others
            )
        if self.partition is not None:
            raise ConfigurationError.at(
                "data.order",
                self.order,
                ": validation samples can't be selected from a stream. Set data.val_fraction and data.folds to null, "
                "and give the data set validation samples of its own.",
            )
        if self.on_corrupt == "skip":
            why = ": a stream can't be continued after an error. Let the class skip what it can't read."
            raise ConfigurationError.at("data.on_corrupt", self.on_corrupt, why)

    def _local(self, key: str) -> Section:
        """The key of a local file or folder with its absolute path; empty if it is not set."""
        path = self.section.get(key)
        return {key: os.path.abspath(os.path.expanduser(path))} if path else {}

    def _absolute(self, root: str) -> str:
        """The root as an absolute path or address. Raises ConfigurationError for an address that cannot be read."""
        if not is_address(root):
            return os.path.abspath(os.path.expanduser(root))
        address = Address.of(root, key="data.root")
        if not self.reads_storage and self.target.startswith("manyheads."):
            raise ConfigurationError.at(
                "data.root",
                address,
                f": data={self.name} reads local folders only. Copy it to one, or use data=tar, data=parquet or "
                "data=tokens.",
            )
        return address.text

    def sources(self) -> dict[str, Path]:
        """Files and folders that the samples are read from, by the names used in the fingerprint."""
        return {"root": Path(self.root)} if self.root and not is_address(self.root) else {}

    def listing(self) -> ObjectListing | None:
        """The objects of samples in object storage; None if they are elsewhere. Raises ConfigurationError."""
        return None


HOW_TO_TEST = (
    "Set data.val_fraction, for example to 0.1: validation samples are then taken from the training samples, and the "
    "data set's own validation samples are used for the test."
)


class Data:
    """Base class of data options: samples for training, for validation, and possibly for a test.

    ``num_classes``: None if samples have no classes; ``mean`` and ``std``: per channel, for images in 0..1.
    ``without_classes``: the error for a model that needs their number; ``numbers_classes``: whether the option itself
    numbers them, so that no label stands for something else. ``num_inputs``: numbers in a sample; ``categories``: how
    many values each of the last of them has, if these are positions in lists. ``scale``: mean and standard deviation
    of targets that are numbers, by which they are standardized for training. ``facts``: rows for the run's header.
    ``streaming``: arguments of ``build_stream`` if samples are taken as they come, else None.
    """

    num_classes: Any = None
    numbers_classes: bool = True
    num_inputs: int | None = None
    categories: Sequence[int] = ()
    scale: tuple[float, float] | None = None
    facts: Mapping[str, str] = MappingProxyType({})
    streaming: Mapping[str, Any] | None = None
    without_classes: str = "the data has no classes, and the model needs its number of outputs. Set model.num_classes."
    mean: tuple[float, ...] = (0.5, 0.5, 0.5)
    std: tuple[float, ...] = (0.5, 0.5, 0.5)

    @property
    def classes_in_words(self) -> str:
        """The number of classes in words, for the run's header; empty if there are no classes."""
        return f"{self.num_classes} classes" if self.num_classes else ""

    def split(self, *, train: bool) -> Samples:
        """The samples of one split. Raises ConfigurationError if they cannot be read."""
        raise NotImplementedError

    def test(self) -> Samples | None:
        """The samples that only trainer.test uses; None if there are none. Raises ConfigurationError."""
        return None


class NamedSplits(Data):
    """Base class of data options that find the samples of a split by its name."""

    def samples(self, split: str) -> Any:
        """The samples of "train", "val" or "test"; None if there are none for a test. Raises ConfigurationError."""
        raise NotImplementedError

    def split(self, *, train: bool) -> Any:
        return self.samples("train" if train else "val")

    def test(self) -> Any:
        return self.samples("test")
