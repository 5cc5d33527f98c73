"""How fast shards in object storage are read, cold and warm, against the same ones in a folder.

``python -m tests.benchmarks.storage <folder> <address> [rounds]``: of shards that ``manyheads pack`` has written, and
their copy; the server is that of the environment. A loader process decodes and crops samples; nothing trains on them.
"""

import sys
import tempfile
import time
from pathlib import Path
from statistics import median

import torch

from manyheads.runner.data.rank.build_data import build_data
from manyheads.runner.data.rank.splits import build_split
from tests.data.conftest import loader
from tests.in_process import typed

BATCH = 64


def samples_per_second(root: str, *words: str, workers: int) -> float:
    """The rate of one epoch, from the first batch's request to the last batch."""
    about = ("data=tar", f"data.root={root}", f"data.batch_size={BATCH}", f"data.num_workers={workers}")
    option = typed(*about, *words).data
    data = build_data(option)
    own = loader(build_split(data, "train", option), batch_size=BATCH, num_workers=workers, dtype=torch.float32)
    try:
        began = time.perf_counter()
        taken = sum(batch.count for batch in own.epoch(0))
        return taken / (time.perf_counter() - began)
    finally:
        own.close()


def main() -> None:
    """Print the median of each, and the smallest and largest."""
    folder, address, *rest = sys.argv[1:]
    found: dict[str, list[float]] = {}
    for _ in range(int(rest[0]) if rest else 5):
        with tempfile.TemporaryDirectory() as cache:
            ways = {"folder": (folder, ()), "cold": (address, (f"data.cache_folder={Path(cache)}",))}
            ways["warm"] = ways["cold"]
            for name, (root, words) in ways.items():
                found.setdefault(name, []).append(samples_per_second(root, *words, workers=1))
    for name, rates in found.items():
        ratio = median(rates) / median(found["folder"])
        print(f"{name:8} {median(rates):8,.0f} samples/s [{min(rates):,.0f}, {max(rates):,.0f}]  {ratio:.2f}")


if __name__ == "__main__":
    main()
