"""Whole loaders over JPEG files with a process or thread for each core, each as its users write it.

All end in shuffled batches (B, 3, 224, 224) of normalized floats, but the one that only decodes.
"""

from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any

import torch
from PIL import Image
from torch.utils.data import DataLoader

from manyheads.runner.data.global_batches import GlobalBatches
from manyheads.runner.data.order import Shuffle
from manyheads.runner.data.rank.batches import BatchDataset
from manyheads.runner.data.rank.input_transform import InputTransform
from manyheads.runner.data.rank.loader import Loader
from manyheads.runner.data.rank.photos import Photos
from manyheads.runner.data.rank.sampler import TrainingSampler
from manyheads.runner.task.rank.task import Task
from tests.benchmarks import photo_peers
from tests.benchmarks.photo_peers import MEAN, SIZE, STD

BATCH = 32
Epochs = dict[str, Callable[[], Iterable[Any]]]


class Files:
    """A data set as everybody has one. ``transform``: from a PIL image on."""

    def __init__(self, paths: list[str], transform: Callable[[Image.Image], Any] | None = None):
        self.paths, self.transform = paths, transform

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, index: int) -> tuple[Any, int]:
        assert self.transform is not None
        with Image.open(self.paths[index]) as file:
            return self.transform(file.convert("RGB")), 0


class Decoded:
    """Nothing of a file but its size, after it was decoded: no batch need be carried to another process."""

    def __init__(self, paths: list[str]):
        self.paths, self.decode = paths, photo_peers.decoding_alone(paths)

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, index: int) -> int:
        return len(self.decode(index))


def epochs(paths: list[str], workers: int) -> Epochs:
    """One epoch of each loader. The first is the classic one; of libraries those that are installed."""
    found: Epochs = {
        "PIL, ToTensor, Normalize": epochs_of(Files(paths, photo_peers.classic_transform()), workers),
        "manyheads": ours(paths, workers),
        "torchvision.io.decode_jpeg alone": epochs_of(Decoded(paths), workers),
    }
    with suppress(ImportError):
        found["timm"] = timms(paths, workers)
    return found


def epochs_of(dataset: Any, workers: int) -> Callable[[], Iterable[Any]]:
    loader = DataLoader(
        dataset, BATCH, shuffle=True, num_workers=workers, persistent_workers=True, worker_init_fn=one_thread
    )
    return lambda: loader


def ours(paths: list[str], workers: int) -> Callable[[], Iterable[Any]]:
    photos = Photos(paths, [0] * len(paths), image_size=SIZE, train=True)
    division = GlobalBatches(len(paths), batch_size=BATCH, drop_last=True)
    order = TrainingSampler(Shuffle(len(paths), seed=1), division, rank=0, world_size=1, accumulation=1)
    batches = BatchDataset(photos, seed=1, on_corrupt="error", replace_corrupt=True)
    input_transform = InputTransform(torch.device("cpu"), torch.float32, False, MEAN, STD)
    loader = Loader(batches, order, task=Task(), input_transform=input_transform, num_workers=workers)
    return lambda: loader.epoch(0)


def timms(paths: list[str], workers: int) -> Callable[[], Iterable[Any]]:
    """With its prefetcher, which normalizes on the device. Raises ImportError."""
    from timm.data import create_loader

    loader = create_loader(
        Files(paths),  # type: ignore[arg-type]
        input_size=SIZE,
        batch_size=BATCH,
        is_training=True,
        color_jitter=0.0,
        num_workers=workers,
        device=torch.device("cpu"),
    )
    return lambda: loader


def one_thread(_: int) -> None:
    torch.set_num_threads(1)
