"""Small data of each kind that object storage may hold, beside the index that ``manyheads index`` writes."""

from collections.abc import Callable
from io import BytesIO
from pathlib import Path
from typing import NamedTuple

import numpy as np

from manyheads.runner.commands.index import write_index
from manyheads.runner.data.token_files import write
from tests.data.conftest import crops
from tests.data.tar.conftest import write_tar


class KindOfShards(NamedTuple):
    """``write``: fills a folder; ``words``: how to train on it; ``damaged``: the error for a wrong bit."""

    write: Callable[[Path], None]
    words: tuple[str, ...]
    suffix: str
    damaged: str


def photo(number: int, kind: str) -> bytes:
    (image,) = crops("cat", 1, first=number)
    image.save(file := BytesIO(), kind)
    return file.getvalue()


def tar(root: Path) -> None:
    """Shards of 2 x 6 training and 4 validation photos."""
    for shard, first, count in (("train-0", 0, 6), ("train-1", 6, 6), ("val-0", 12, 4)):
        files = []
        for number in range(first, first + count):
            files += [(f"{number:03d}.jpg", photo(number, "JPEG")), (f"{number:03d}.cls", str(number % 3).encode())]
        write_tar(root / f"{shard}.tar", files)
    (root / "classnames.txt").write_text("cold\nwarm\nhot\n")


def parquet(root: Path) -> None:
    """The same photos, without loss, some 20 kB each, in groups of two rows."""
    import pyarrow
    import pyarrow.parquet

    root.mkdir(parents=True)
    for shard, first, count in (("train-0", 0, 6), ("train-1", 6, 6), ("val-0", 12, 4)):
        numbers = range(first, first + count)
        images = [{"bytes": photo(number, "PNG"), "path": None} for number in numbers]
        table = pyarrow.table({"image": images, "label": [number % 3 for number in numbers]})
        pyarrow.parquet.write_table(table, root / f"{shard}.parquet", row_group_size=2)


def tokens(root: Path) -> None:
    """Two files of 200 kB for training, and one for validation; with documents of 1,000 tokens."""
    root.mkdir(parents=True)
    for number, (shard, count) in enumerate((("train-0", 50_000), ("train-1", 50_000), ("val-0", 5_000))):
        row = np.random.RandomState(number).randint(0, 61, count).astype(np.int32)
        write(root, shard, row, range(1000, count + 1, 1000))


PHOTOS = ("data.image_size=16", "data.batch_size=4", "data.fetch_mb=0.004")
KINDS = {
    "tar": KindOfShards(tar, ("data=tar", *PHOTOS), ".tar", r"see .* bytes \d+ to \d+, jpg of sample \d+"),
    "parquet": KindOfShards(parquet, ("data=parquet", *PHOTOS), ".parquet", r"see bytes \d+ to \d+"),
    "tokens": KindOfShards(
        tokens,
        (
            *("data=tokens", "data.vocab_size=61", "data.block_size=32", "data.batch_size=16", "data.fetch_mb=0.004"),
            *("task=language_model", "model=gpt", "model.width=12", "model.depth=1", "trainer.limit_train=4"),
            "trainer.limit_val=1",
        ),
        ".bin",
        r"see bytes \d+ to \d+",
    ),
}


def written(name: str, root: Path) -> Path:
    """The folder of one kind, with its index."""
    KINDS[name].write(root)
    write_index(root, contents=True)
    return root
