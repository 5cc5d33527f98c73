"""How fast photos are read from a folder, from tar shards and by other libraries from theirs, warm and cold.

``python -m tests.benchmarks.photo_shards <folder> [--count 10000] [--rounds 3] [--peers <python>]``: writes the
photos into the folder unless it has them, then reads them by each reader in turn, with and without the page cache. A
reader whose library is missing is skipped. ``--peers`` names the Python of an environment in which litdata,
mosaicml-streaming and DALI are installed, and this project, since their requirements conflict. ``--seconds``: ends
after the round in which that is exceeded.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from itertools import islice
from pathlib import Path
from statistics import median

import psutil

from tests.benchmarks import photos

TAKEN = 140  # batches that are measured, after the first one
WARM, COLD = "warm", "cold"
DROP = Path("/proc/sys/vm/drop_caches")
DECODING = "decoding alone"
FOLDERS = {  # of readers that do not read the image folder
    "manyheads, tar": "tar",
    "webdataset, tar": "tar",
    "litdata, its chunks": "litdata",
    "mosaicml-streaming, MDS": "mosaic",
}
PEERS = ("litdata", "mosaic", "litdata, its chunks", "mosaicml-streaming, MDS", "NVIDIA DALI, folder")


def write(root: Path, count: int) -> None:
    """Write the photos, different in each file, and their shards, unless they exist."""
    folder = root / "folder" / "train" / "photos"
    if not folder.is_dir():
        folder.mkdir(parents=True)
        (root / "few").mkdir(exist_ok=True)
        few = [Path(path).read_bytes() for path in photos.save(root / "few")]
        for number in range(count):  # other bytes after the end of the image, so that no file system merges them
            (folder / f"{number:06d}.jpg").write_bytes(few[number % len(few)] + number.to_bytes(4, "little"))
        (root / "folder" / "val" / "photos").mkdir(parents=True)
        for number in range(4):
            (root / "folder" / "val" / "photos" / f"{number}.jpg").write_bytes(few[number])


def forget(root: Path) -> None:
    """Drop the files from the page cache; as root, also what is known of their folders."""
    if os.access(DROP, os.W_OK):
        os.sync()
        DROP.write_text("3")
        return
    for path in root.rglob("*"):
        if path.is_file():
            with open(path, "rb") as file:
                os.fdatasync(file.fileno())
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def remember(root: Path) -> None:
    """Read all files into the page cache."""
    for path in root.rglob("*"):
        if path.is_file():
            path.read_bytes()


def read(name: str, root: Path) -> None:
    """Print samples per second and CPU milliseconds per sample of one reader, in a process of its own."""
    from tests.benchmarks.photo_readers import BATCH, READERS, one_thread

    one_thread(0)
    batches = READERS[name](root)
    next(batches)
    began, used = time.perf_counter(), _cpu_seconds()
    taken = sum(1 for _ in islice(batches, TAKEN)) * BATCH
    took, used = time.perf_counter() - began, _cpu_seconds() - used
    print(json.dumps({"rate": taken / took, "cpu": 1000 * used / taken}), flush=True)
    os._exit(0)  # some wait for threads of theirs


def _cpu_seconds() -> float:
    own = psutil.Process()
    return sum(sum(each.cpu_times()[:2]) for each in (own, *own.children(recursive=True)))


def measured(name: str, root: Path, state: str, python: str) -> dict[str, float] | None:
    """One reading; None if the reader's library is missing."""
    if state == COLD:
        forget(root)
    else:
        remember(root / FOLDERS.get(name, "folder"))
    command = [python, "-m", "tests.benchmarks.photo_shards", str(root), "--read", name]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        last = done.stderr.strip().splitlines()[-1:]
        print(f"{name}: {last}", file=sys.stderr)
        return None
    found: dict[str, float] = json.loads(done.stdout.strip().splitlines()[-1])
    return found


def main() -> None:
    """Print, for each reader and state, medians of the rate and CPU time, and of their ratios to decoding alone."""
    parser = argparse.ArgumentParser()
    parser.add_argument("root", type=Path)
    parser.add_argument("--count", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=540)
    parser.add_argument("--peers", default=sys.executable)
    parser.add_argument("--read")
    parser.add_argument("--write", choices=("tar", "litdata", "mosaic"))
    arguments = parser.parse_args()
    if arguments.read:
        read(arguments.read, arguments.root)
    if arguments.write:
        from tests.benchmarks.photo_readers import WRITERS

        WRITERS[arguments.write](arguments.root)
        return
    compare(arguments)


def compare(arguments: argparse.Namespace) -> None:
    from tests.benchmarks.photo_readers import READERS, WRITERS

    began = time.monotonic()
    write(arguments.root, arguments.count)
    pythons = dict.fromkeys(PEERS, arguments.peers)
    for name in WRITERS:
        if not (arguments.root / name).is_dir():
            command = ["-m", "tests.benchmarks.photo_shards", str(arguments.root), "--write", name]
            subprocess.run([pythons.get(name, sys.executable), *command], check=False, capture_output=True)
    found: dict[tuple[str, str], list[dict[str, float]]] = {}
    for _ in range(arguments.rounds):
        for state in (COLD, WARM):
            for name in READERS:
                python = pythons.get(name, sys.executable)
                if (once := measured(name, arguments.root, state, python)) is not None:
                    found.setdefault((state, name), []).append(once)
        if time.monotonic() - began > arguments.seconds:
            break
    for (state, name), each in found.items():
        alone = found[state, DECODING]
        rate, cpu = (median(one[key] for one in each) for key in ("rate", "cpu"))
        ratios = [
            median(one[key] / other[key] for one, other in zip(each, alone, strict=False)) for key in ("rate", "cpu")
        ]
        few = f"[{min(one['rate'] for one in each):,.0f}, {max(one['rate'] for one in each):,.0f}]"
        print(f"{state} {name:26} {rate:7,.0f}/s {few:16} {ratios[0]:.2f}  {cpu:.3f} ms {ratios[1]:.2f}  n={len(each)}")


if __name__ == "__main__":
    main()
