"""How long training stands still for a checkpoint: formats, beside training or not, against torch.save by itself.

``python -m tests.benchmarks.checkpoints [most MB]``, some two minutes and 4 GB of disk for all.
"""

import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import torch
from rich.console import Console

from manyheads.runner.checkpoint.rank.checkpoints import CheckpointStore
from manyheads.runner.run.run_folder import RunFolder
from tests.benchmarks.curve import Curve
from tests.checkpoint.ranks import Rank, together
from tests.checkpoint.views import Given, OneRank

SIZES = (10, 100, 1000)  # MB
TENSORS = 24
RANKS = 2


def state(size: int, rank: int = 0, ranks: int = 1) -> dict[str, Any]:
    """So many MB of weights and two moments, of which a rank has its rows."""
    from manyheads.runner.checkpoint.sharded.index import Box
    from manyheads.runner.checkpoint.sharded.rank.rank_share import RankShare

    rows, columns = 240, size * 10**6 // 4 // TENSORS // 240
    box = Box((rank * rows // ranks, 0), (rows // ranks, columns))
    made = [RankShare((rows, columns), torch.float32, ((box, torch.rand(box.shape)),)) for _ in range(TENSORS)]
    third = TENSORS // 3
    moments = {i: {"exp_avg": made[third + i], "exp_avg_sq": made[2 * third + i]} for i in range(third)}
    return {"model": {f"w{i}": made[i] for i in range(third)}, "optimizer": {"state": moments}, "progress": {}}


def plain(value: Any) -> Any:
    """The same with tensors in the place of whole shares."""
    if isinstance(value, dict):
        return {name: plain(each) for name, each in value.items()}
    return value.pieces[0][1]


def by_torch(folder: Path, content: Any, *, synced: bool) -> float:
    started = time.perf_counter()
    with open(folder / "plain.pt", "wb") as file:
        torch.save(content, file)
        if synced:
            file.flush()
            os.fsync(file.fileno())
    return time.perf_counter() - started


def by_us(folder: Path, content: Any, ranks: Any, *, form: str, asynchronous: bool) -> float:
    """Seconds until training goes on; what is written meanwhile is waited for before the next one."""
    checkpoints = CheckpointStore(RunFolder(folder), every=1, keep=0, format=form, asynchronous=asynchronous)
    started = time.perf_counter()
    checkpoints.save(Given(content), ranks, step=1, best=False)
    seconds = time.perf_counter() - started
    checkpoints.wait_for_save()
    return seconds


def of_ranks(folder: Path, size: int, *, asynchronous: bool) -> float:
    """The slowest of two ranks."""

    def work(rank: Rank) -> None:
        content = state(size, rank.rank, RANKS)
        rank.gather("all are ready")
        found = by_us(folder, content, rank, form="sharded", asynchronous=asynchronous)
        (folder / f"seconds.{rank.rank}").write_text(str(found))

    assert together(RANKS, work, folder / "meeting") == [0] * RANKS
    return max(float((folder / f"seconds.{rank}").read_text()) for rank in range(RANKS))


def measure(most: int = SIZES[-1]) -> Curve:
    sizes = [size for size in SIZES if size <= most]
    found: dict[str, list[float]] = {}
    for size in sizes:
        shares = state(size)
        content = plain(shares)
        candidates: dict[str, Callable[[Path], float]] = {
            "torch.save": lambda folder, content=content: by_torch(folder, content, synced=False),
            "torch.save, synced": lambda folder, content=content: by_torch(folder, content, synced=True),
        }
        for form, value in (("single", content), ("sharded", shares)):
            for asynchronous in (False, True):
                name = f"{form}{', asynchronous' * asynchronous}"
                candidates[name] = lambda folder, value=value, form=form, asynchronous=asynchronous: by_us(
                    folder, value, OneRank(), form=form, asynchronous=asynchronous
                )
        for asynchronous in (False, True):
            name = f"sharded, {RANKS} ranks{', asynchronous' * asynchronous}"
            candidates[name] = lambda folder, size=size, asynchronous=asynchronous: of_ranks(
                folder, size, asynchronous=asynchronous
            )
        for name, values in _rounds(candidates, 1 if size >= 1000 else 3).items():
            found.setdefault(name, []).append(median(values))
    return Curve("training stands still for a checkpoint", "MB of state", "seconds", sizes, found)


def _rounds(candidates: dict[str, Callable[[Path], float]], rounds: int) -> dict[str, list[float]]:
    """Each once a round, in turn, in a folder of its own."""
    found: dict[str, list[float]] = {name: [] for name in candidates}
    for _ in range(rounds):
        for name, candidate in candidates.items():
            folder = Path(tempfile.mkdtemp())
            found[name].append(candidate(folder))
            shutil.rmtree(folder)
    return found


if __name__ == "__main__":
    Console().print(measure(*map(int, sys.argv[1:])).table())
