"""JPEGs of 500x375 pixels in a folder, in tar shards and in the formats of other libraries, and how each is read.

Every reader yields batches of BATCH uint8 samples of 224x224 pixels, in a random order, by two processes or threads.
The Python libraries decode and crop by this project's functions.
"""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import DataLoader

from manyheads.runner.commands.pack import answer, pack_data
from manyheads.runner.data.global_batches import GlobalBatches
from manyheads.runner.data.order import Shuffle
from manyheads.runner.data.rank.batches import BatchDataset
from manyheads.runner.data.rank.build_data import build_data
from manyheads.runner.data.rank.crops import training_view
from manyheads.runner.data.rank.photos import Picture, shown
from manyheads.runner.data.rank.sampler import TrainingSampler
from manyheads.runner.data.rank.splits import build_split
from manyheads.runner.data.rank.workers import Workers
from manyheads.runner.data.read_ahead import read_ahead
from tests.benchmarks import photo_peers
from tests.benchmarks.photo_loaders import Decoded, one_thread
from tests.in_process import typed

BATCH, WORKERS, SIZE = 64, 2, photo_peers.SIZE
Batches = Iterator[Any]


def sample(content: bytes) -> torch.Tensor:
    """A training sample, (3, SIZE, SIZE) uint8, as this project makes it."""
    picture = Picture(content)
    return shown(picture, training_view(picture.height, picture.width, SIZE), SIZE)


def files(root: Path) -> list[str]:
    return sorted(str(path) for path in (root / "folder" / "train").rglob("*.jpg"))


def decoding(root: Path) -> Batches:
    """Nothing but decoding: no sample is cropped, or passed to another process."""
    return iter(_loader(Decoded(files(root)), shuffle=True))


def our_folder(root: Path) -> Batches:
    return _ours("data=imagefolder", root / "folder")


def our_tar(root: Path) -> Batches:
    return _ours("data=tar", root / "tar")


def torchs_loader(root: Path) -> Batches:
    """torch's DataLoader over this project's data set of the folder."""
    return iter(_loader(_data_set("data=imagefolder", root / "folder"), shuffle=True))


def webdatasets(root: Path) -> Batches:
    import webdataset

    shards = sorted(str(path) for path in (root / "tar").glob("train-*.tar"))
    found = webdataset.WebDataset(shards, shardshuffle=100, nodesplitter=None).shuffle(1000)
    found = found.to_tuple("jpg", "cls").map_tuple(sample, int).batched(BATCH)
    return iter(webdataset.WebLoader(found, batch_size=None, num_workers=WORKERS, worker_init_fn=one_thread))


def litdatas(root: Path) -> Batches:
    import litdata

    class Photos(litdata.StreamingDataset):
        def __getitem__(self, index: Any) -> Any:
            found = super().__getitem__(index)
            return sample(bytes(found["image"])), found["label"]

    found = Photos(str(root / "litdata"), shuffle=True)
    return iter(litdata.StreamingDataLoader(found, batch_size=BATCH, num_workers=WORKERS, worker_init_fn=one_thread))


def mosaics(root: Path) -> Batches:
    import streaming

    class Photos(streaming.StreamingDataset):
        def __getitem__(self, index: Any) -> Any:
            found = super().__getitem__(index)
            return sample(found["image"]), found["label"]

    found = Photos(local=str(root / "mosaic"), shuffle=True, batch_size=BATCH)
    return iter(DataLoader(found, BATCH, num_workers=WORKERS, worker_init_fn=one_thread))


def dalis(root: Path) -> Batches:
    return iter(photo_peers.dali(files(root), batch_size=BATCH, threads=WORKERS, normalized=False))


READERS: dict[str, Callable[[Path], Batches]] = {
    "decoding alone": decoding,
    "manyheads, folder": our_folder,
    "manyheads, tar": our_tar,
    "DataLoader, folder": torchs_loader,
    "webdataset, tar": webdatasets,
    "litdata, its chunks": litdatas,
    "mosaicml-streaming, MDS": mosaics,
    "NVIDIA DALI, folder": dalis,
}


def write_tar(root: Path) -> None:
    settings = answer.Settings("tar", 64 * 10**6, 0, None, 90)  # webdataset shuffles within a window only
    pack_data.pack(str(root / "folder"), [], str(root / "tar"), settings)


def write_litdata(root: Path) -> None:
    import litdata

    litdata.optimize(_record, files(root), str(root / "litdata"), chunk_bytes="64MB", num_workers=WORKERS)


def write_mosaic(root: Path) -> None:
    import streaming

    columns = {"image": "bytes", "label": "int"}
    with streaming.MDSWriter(out=str(root / "mosaic"), columns=columns, size_limit=64 * 10**6) as out:
        for path in files(root):
            out.write(_record(path))


WRITERS: dict[str, Callable[[Path], None]] = {"tar": write_tar, "litdata": write_litdata, "mosaic": write_mosaic}


def _record(path: str) -> dict[str, Any]:
    return {"image": Path(path).read_bytes(), "label": 0}


def _data_set(option: str, root: Path) -> Any:
    about = typed(option, f"data.root={root}").data
    return build_split(build_data(about), "train", about)


def _ours(option: str, root: Path) -> Batches:
    dataset = _data_set(option, root)
    division = GlobalBatches(len(dataset), batch_size=BATCH, drop_last=True)
    order = TrainingSampler(Shuffle(len(dataset), seed=1), division, rank=0, world_size=1, accumulation=1)
    batches = BatchDataset(dataset, seed=1, on_corrupt="error", replace_corrupt=True)
    workers = Workers(batches, WORKERS)
    workers._count = WORKERS  # from the first batch on, as in the others
    return workers.fetch(read_ahead(dataset, order.epoch(0)))


def _loader(dataset: Any, *, shuffle: bool) -> DataLoader[Any]:
    return DataLoader(dataset, BATCH, shuffle=shuffle, num_workers=WORKERS, worker_init_fn=one_thread)
