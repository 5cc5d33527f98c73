"""The input pipeline: 500x375 JPEGs to 224x224 training samples, on one core and on all.

``python -m tests.benchmarks.photos`` measures this alone.
"""

import math
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from statistics import median
from typing import Any

import skimage.data
import torch
from PIL import Image
from rich.console import Console

from manyheads.launchers.sweep.devices import on_cores, shares_of_cores
from manyheads.runner.data.rank.photos import Photos
from manyheads.runner.machine import hardware
from tests.benchmarks import photo_loaders, photo_peers
from tests.benchmarks.curve import Curve
from tests.benchmarks.measure import Comparison, compare

PHOTOS = ("astronaut", "chelsea", "coffee", "rocket")
COUNT, SIZE = 64, photo_peers.SIZE
TIMES = 8  # each photo in an epoch of all cores, so that beginning and end of it don't weigh
OURS, DECODING, DALI = "manyheads", "torchvision.io.decode_jpeg alone", "NVIDIA DALI"
ONE, ALL = "JPEG to training sample, one core", "JPEG to training batch, all cores"
# At least so many times as many samples per second.
BARS = {"PIL, ToTensor, Normalize": 1.8, "timm": 1.0, DALI: 1.0, DECODING: 0.7}


def save(folder: Path) -> list[str]:
    """JPEGs as ImageNet's are on average, of some 50 KB."""
    for number in range(COUNT):
        photo = Image.fromarray(getattr(skimage.data, PHOTOS[number % len(PHOTOS)])()).convert("RGB")
        photo.resize((500, 375), Image.Resampling.LANCZOS).save(folder / f"{number}.jpg", quality=88 + number % 7)
    return [str(folder / f"{number}.jpg") for number in range(COUNT)]


def measure(rounds: int = 15) -> Comparison:
    """Seconds for every photo once, sample by sample. Libraries where they are installed: pip install --group bench."""
    with saved() as paths, on_cores(shares_of_cores(hardware.cpu_cores())[0]):  # DALI has more than the one thread
        ours = Photos(paths, [0] * COUNT, image_size=SIZE, train=True)
        samples = {
            "PIL, ToTensor, Normalize": photo_peers.sample_by(photo_peers.classic_transform(), paths),
            OURS: ours.__getitem__,
            DECODING: photo_peers.decoding_alone(paths),
        }
        with suppress(ImportError):
            samples["timm"] = photo_peers.sample_by(photo_peers.timms_transform(), paths)
        candidates = {name: of_samples(sample) for name, sample in samples.items()}
        with suppress(ImportError):
            endless = photo_peers.dali(paths, batch_size=photo_loaders.BATCH, threads=1, normalized=False)
            candidates[DALI] = of_endless(endless, COUNT)
        return compare(ONE, candidates, rounds=rounds)


def all_cores(rounds: int = 9) -> Comparison:
    """Seconds for every photo ``TIMES`` times, by loaders with a process or thread for each core."""
    with saved() as paths:
        paths, cores = paths * TIMES, hardware.cpu_cores()
        candidates = {name: of_epoch(epoch) for name, epoch in photo_loaders.epochs(paths, cores).items()}
        with suppress(ImportError):
            endless = photo_peers.dali(paths, batch_size=photo_loaders.BATCH, threads=cores, normalized=True)
            candidates[DALI] = of_endless(endless, len(paths))
        return compare(ALL, candidates, rounds=rounds)


def curve(one: Comparison, every: Comparison) -> Curve:
    """Samples per second and core."""
    cores = hardware.cpu_cores()
    found = {name: [COUNT / median(seconds)] for name, seconds in one.seconds.items()}
    for name, seconds in every.seconds.items():
        found[name].append(COUNT * TIMES / median(seconds) / cores)
    return Curve("JPEGs to training samples", "cores", "samples/s and core", [1, cores], found)


@contextmanager
def saved() -> Iterator[list[str]]:
    """The photos' paths, with one thread for each process and no warnings of what is only measured here."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as scratch, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield save(Path(scratch))
    torch.set_num_threads(threads)


def of_samples(sample: Callable[[int], Any]) -> Callable[[], float]:
    def seconds() -> float:
        start = time.perf_counter()
        for index in range(COUNT):
            sample(index)
        return time.perf_counter() - start

    return seconds


def of_epoch(epoch: Callable[[], Any]) -> Callable[[], float]:
    def seconds() -> float:
        start = time.perf_counter()
        for _ in epoch():
            pass
        return time.perf_counter() - start

    return seconds


def of_endless(batches: Any, count: int) -> Callable[[], float]:
    """Of batches that threads make ahead: what they made while others were measured is thrown away before."""

    def seconds() -> float:
        for _ in range(4):
            next(batches)
        start = time.perf_counter()
        for _ in range(count // photo_loaders.BATCH):
            next(batches)
        took = time.perf_counter() - start
        wait_until_idle()
        return took

    return seconds


def wait_until_idle() -> None:
    """Until no thread of this process works, so that whoever is measured next has the cores alone."""
    used = -math.inf
    while time.process_time() - used > 0.002:
        used = time.process_time()
        time.sleep(0.05)


def main() -> None:
    from tests.benchmarks.bars import PHOTOS as PHOTO_BARS  # which imports this module
    from tests.benchmarks.bars import lines

    one, every = measure(), all_cores()
    Console().print(curve(one, every).table())
    for comparison in (one, every):
        print(*lines(comparison, PHOTO_BARS), sep="\n")


if __name__ == "__main__":
    main()
