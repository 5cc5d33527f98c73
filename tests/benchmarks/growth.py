"""How costs grow: with ranks, samples, jobs of a sweep, and files of an image folder.

``python -m tests.benchmarks.growth [ranks] [samples] [jobs] [files] [orders]`` measures all, or some, in four minutes.
With MANYHEADS_MILLION set in the environment also a million files, which take a minute or more to make and to remove.
"""

import argparse
import os
import sys
import tempfile
import time
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from statistics import median

import numpy as np
import torch
from rich.console import Console

from manyheads.runner.config.lookup import read_option
from manyheads.runner.data.global_batches import GlobalBatches
from manyheads.runner.data.imagefolder import ImageFolderOption, class_names
from manyheads.runner.data.imagefolder_index import SETTLED, list_images
from manyheads.runner.data.order import BlockOrder, Feistel, Order, Shuffle
from manyheads.runner.data.rank.batches import BatchDataset
from manyheads.runner.data.rank.in_memory import InMemory
from manyheads.runner.data.rank.input_transform import InputTransform
from manyheads.runner.data.rank.loader import Loader
from manyheads.runner.data.rank.sampler import TrainingSampler
from manyheads.runner.provenance.fingerprint import _taken, fingerprint
from manyheads.runner.records.load_run import read_columns
from manyheads.runner.run.run_folder import RunFolder
from manyheads.runner.task.rank.task import Task
from tests.benchmarks.curve import Curve
from tests.benchmarks.start import seconds
from tests.in_process import typed
from tests.sweeps import WrittenSweep

RANKS, SAMPLES = (1, 2, 3, 4), (10**2, 10**3, 10**4, 10**5, 10**6)
JOBS, FILES = (10, 100, 1000), (10**3, 10**4, 10**5, *([10**6] if os.environ.get("MANYHEADS_MILLION") else []))
ORDERED = (10**4, 10**6, 10**7, 10**8)
CLASSES, BATCH = 1000, 96
QUICK = ("data.num_workers=0", "trainer.device=cpu", "launcher.threads_per_rank=1", "checkpoint.every=0")


def by_ranks() -> Curve:
    """DDP over gloo; the rest: from the command to the end, without the training."""
    found: dict[str, list[float]] = {"step, same global batch": [], "step, same batch per rank": [], "the rest": []}
    with tempfile.TemporaryDirectory() as scratch:
        for ranks in RANKS:
            step, rest = _run(Path(scratch) / f"{ranks}", ranks, batch_size=BATCH)
            found["step, same global batch"].append(step)
            found["the rest"].append(rest)
            weak, _ = _run(Path(scratch) / f"{ranks}_weak", ranks, batch_size=BATCH * ranks)
            found["step, same batch per rank"].append(weak)
    return Curve("small_cnn on digits by parallel=ddp, 1 thread per rank", "ranks", "seconds", list(RANKS), found)


def _run(path: Path, ranks: int, *, batch_size: int) -> tuple[float, float]:
    """Seconds of a step, by the median epoch without the first, and of all but training."""
    options = ("parallel=ddp", f"launcher.nproc_per_node={ranks}", f"data.batch_size={batch_size}", "trainer.epochs=6")
    wall = seconds(sys.executable, "run.py", *QUICK, *options, f"hydra.run.dir={path}")
    epochs = read_columns(RunFolder(path).epochs)
    steps = epochs["step"][0]
    return median(epochs["train_seconds"][1:]) / steps, wall - sum(epochs["train_seconds"])


def by_samples() -> Curve:
    """The whole loader over images in memory: from an epoch's last batch to the next one's first."""
    found: dict[str, list[float]] = {}
    _epochs(SAMPLES[0], 0)  # warm-up
    for size in SAMPLES:
        for workers in (0, 2):
            start, turn = _epochs(size, workers)
            found.setdefault(f"start, {workers} workers", []).append(start)
            found.setdefault(f"epoch turn-over, {workers} workers", []).append(turn)
    return Curve("the order of an epoch's samples", "samples", "milliseconds", list(SAMPLES), found)


def _epochs(size: int, workers: int, times: int = 9) -> tuple[float, float]:
    """Milliseconds until the first batch, and at an epoch's end; epochs are gone on with at their last ten updates."""
    images, targets = torch.zeros(size, 1, 4, 4, dtype=torch.uint8), torch.zeros(size, dtype=torch.int64)
    began = time.perf_counter()
    dataset = InMemory(images, targets, image_size=4)
    division = GlobalBatches(size, batch_size=32, drop_last=True)
    order = TrainingSampler(Shuffle(size, seed=1), division, rank=0, world_size=1, accumulation=1)
    batches = BatchDataset(dataset, seed=1, on_corrupt="error", replace_corrupt=True)
    input_transform = InputTransform(torch.device("cpu"), torch.float32, False, (0.5,), (0.5,))
    loader = Loader(batches, order, task=Task(), input_transform=input_transform, num_workers=workers)
    turns, last = [], began
    for epoch in range(times + 1):
        for number, _ in enumerate(loader.epoch(epoch, max(0, order.updates - 10))):
            if number == 0:
                turns.append(1e3 * (time.perf_counter() - last))
            last = time.perf_counter()
    return turns[0], median(turns[1:])


def by_orders() -> Curve:
    """The last batch of 256 of an epoch's order, as a resumed run begins: the first time, each next time, and memory.

    Microseconds, and kilobytes of memory.
    """
    found: dict[str, list[float]] = {}
    for size in ORDERED:
        orders: dict[str, Order] = {"shuffle": Shuffle(size, seed=1), "feistel": Feistel(size, seed=1)}
        orders["blocks"] = BlockOrder(size, seed=1, block=100, window=1000)
        for name, order in orders.items():
            last = partial(order.at, positions=np.arange(size - 256, size))
            took = [_timed(partial(last, 3)) for _ in range(9)]
            tracemalloc.start()
            last(4)  # another epoch, which nothing is kept of
            _, most = tracemalloc.get_traced_memory()
            tracemalloc.stop()
            values = {"first": 1e6 * took[0], "next": 1e6 * min(took[1:]), "memory": most / 1e3}
            for what, value in values.items():
                found.setdefault(f"{name}, {what}", []).append(value)
    return Curve("the order of samples", "samples", "us and kB", list(ORDERED), found)


def _timed(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def by_jobs() -> Curve:
    """Of finished jobs: the comparison, and going on with a sweep in which there is nothing to do."""
    found: dict[str, list[float]] = {"report": [], "resume": []}
    with tempfile.TemporaryDirectory() as scratch:
        run = Path(scratch) / "run"
        seconds(sys.executable, "run.py", *QUICK, "trainer.epochs=15", f"hydra.run.dir={run}")
        for count in JOBS:
            sweep = _sweep(Path(scratch) / f"{count}", RunFolder(run), count)
            for command in found:
                took = [seconds(sys.executable, "-m", "manyheads.runner", command, str(sweep)) for _ in range(3)]
                found[command].append(median(took))
    return Curve("finished jobs of a sweep", "jobs", "seconds", list(JOBS), found)


def _sweep(folder: Path, source: RunFolder, count: int) -> Path:
    """Copies of one run under other options, each of which took a little longer than the one before."""
    sweep = WrittenSweep(folder, source)
    for number in range(count):
        seed, batch, parallel = number // 8, (32, 64, 128, 256)[number // 2 % 4], ("single", "ddp")[number % 2]
        options = (f"parallel={parallel}", f"data.batch_size={batch}", f"seed={seed}")
        sweep.job(*options, seconds=1 + number / count, ranks=1 + number % 2)
    return folder


def by_files() -> Curve:
    """An image folder of empty files, in memory's caches: the parent's look at it, a rank's, and the fingerprint."""
    found: dict[str, list[float]] = {}
    for count in FILES:
        with tempfile.TemporaryDirectory() as scratch, _cache_in(Path(scratch) / "cache"):
            for name, value in _image_folder(Path(scratch) / "photos", count).items():
                found.setdefault(name, []).append(value)
    return Curve("an image folder", "files", "seconds", list(FILES), found)


def _image_folder(root: Path, count: int) -> dict[str, float]:
    classes = min(CLASSES, count // 10)
    began = time.perf_counter()
    for number in range(classes):
        for split, files in (("train", count // classes), ("val", 1)):
            folder = root / split / f"{number:04d}"
            folder.mkdir(parents=True)
            for file in range(files):
                os.close(os.open(f"{folder}/{number:04d}_{file:08d}.jpg", os.O_CREAT | os.O_WRONLY))
    made = time.perf_counter() - began
    time.sleep(SETTLED / 1e9 + 0.1)  # what has changed just now is not kept
    section = {
        "_target_": "manyheads.runner.data.imagefolder.ImageFolder",
        "root": str(root),
        "fingerprint": "sizes",
    }
    option, run = ImageFolderOption({**read_option("data", "imagefolder"), **section}), typed()
    _taken.cache_clear()
    return {
        "making it": made,
        "first start": _timed(lambda: option.check_run(run)),
        "second start": median(_timed(lambda: option.check_run(run)) for _ in range(5)),
        "each rank": median(_timed(lambda: list_images(root / "train", class_names(root / "train"))) for _ in range(5)),
        "fingerprint": _timed(lambda: fingerprint(option)),
    }


def _timed(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


@contextmanager
def _cache_in(folder: Path) -> Iterator[None]:
    before = os.environ.get("XDG_CACHE_HOME")
    os.environ["XDG_CACHE_HOME"] = str(folder)
    try:
        yield
    finally:
        if before is None:
            del os.environ["XDG_CACHE_HOME"]
        else:
            os.environ["XDG_CACHE_HOME"] = before


MEASURES: dict[str, Callable[[], Curve]] = {
    "ranks": by_ranks,
    "samples": by_samples,
    "jobs": by_jobs,
    "files": by_files,
    "orders": by_orders,
}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.growth", description=__doc__)
    parser.add_argument("what", nargs="*", choices=[*MEASURES, []], help="what to grow; all of it if none is named")
    for name in parser.parse_args().what or MEASURES:
        Console().print(MEASURES[name]().table())


if __name__ == "__main__":
    main()
