"""Real photos on the disk, and a loader over any data set."""

from pathlib import Path

import pytest
import skimage.data
import torch
from PIL import Image

from manyheads.runner.data.global_batches import GlobalBatches
from manyheads.runner.data.order import Shuffle
from manyheads.runner.data.rank.batches import BatchDataset
from manyheads.runner.data.rank.input_transform import InputTransform
from manyheads.runner.data.rank.loader import Loader
from manyheads.runner.data.rank.sampler import EvaluationSampler, TrainingSampler
from manyheads.runner.data.samples import Dataset
from manyheads.runner.task.rank.task import Task

SIDE = 24
CPU = torch.device("cpu")
PHOTOS = {"cat": skimage.data.chelsea, "coffee": skimage.data.coffee, "person": skimage.data.astronaut}


def crops(name: str, count: int, *, first: int) -> list[Image.Image]:
    """Overlapping crops of 100 by 80 pixels of one of scikit-image's photos."""
    photo = Image.fromarray(PHOTOS[name]())
    return [photo.crop((15 * i, 10 * i, 15 * i + 100, 10 * i + 80)) for i in range(first, first + count)]


def save_photos(root: Path, *, train: int = 5, val: int = 3) -> Path:
    for name in PHOTOS:
        for split, count, first in (("train", train, 0), ("val", val, train)):
            folder = root / split / name
            folder.mkdir(parents=True)
            for number, crop in enumerate(crops(name, count, first=first)):
                crop.save(folder / f"{number}.jpg", quality=90)
    return root


@pytest.fixture(scope="session")
def photos(tmp_path_factory) -> Path:
    """train/ and val/ of three classes; not to be changed."""
    return save_photos(tmp_path_factory.mktemp("photos"))


@pytest.fixture
def own_photos(tmp_path) -> Path:
    """The same, for a test to spoil."""
    return save_photos(tmp_path / "photos")


class Pairs(Task):
    """Batches are (inputs, targets), and each sample counts."""


def loader(
    dataset: Dataset,
    *,
    batch_size: int,
    train: bool = True,
    rank: int = 0,
    ranks: int = 1,
    drop_last: bool = True,
    accumulation: int = 1,
    num_workers: int = 0,
    seed: int = 1,
    on_corrupt: str = "error",
    dtype: torch.dtype = torch.float64,
    channels_last: bool = False,
    device: torch.device = CPU,
    task: Task | None = None,
) -> Loader:
    share = {"rank": rank, "world_size": ranks}
    division = GlobalBatches(len(dataset), batch_size=batch_size, drop_last=drop_last)
    order = TrainingSampler(Shuffle(len(dataset), seed=seed), division, accumulation=accumulation, **share)
    sampler = order if train else EvaluationSampler(len(dataset), batch_size=batch_size, **share)
    input_transform = InputTransform(device, dtype, channels_last, (0.25, 0.5, 0.75), (0.5, 1.0, 2.0))
    batches = BatchDataset(dataset, seed=seed, on_corrupt=on_corrupt, replace_corrupt=train)
    return Loader(batches, sampler, task=task or Pairs(), input_transform=input_transform, num_workers=num_workers)


@pytest.fixture
def load():
    """Makes loaders; their processes have ended when the test has."""
    made: list[Loader] = []

    def make(dataset: Dataset, **options) -> Loader:
        made.append(loader(dataset, **options))
        return made[-1]

    yield make
    for each in made:
        each.close()
