"""A state of training in parts, and where the save of one can be killed."""

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from manyheads.runner.checkpoint.sharded.index import Box
from manyheads.runner.checkpoint.sharded.rank import write_sharded
from manyheads.runner.checkpoint.sharded.rank.rank_share import RankShare


def die(*_: Any, **__: Any) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def after(function: Callable[..., Any]) -> Callable[..., Any]:
    """It, and then the end."""

    def called(*values: Any, **options: Any) -> Any:
        function(*values, **options)
        die()

    return called


def half_a_file(path: Path, *_: Any) -> None:
    """In the place of ``write_file``."""
    path.write_bytes(b"half of a file")
    die()


# Where a save can be hit: what is put in the place of which function of ``write``.
MOMENTS: dict[str, dict[str, Callable[..., Any]]] = {
    "before writing": {"write_file": die},
    "in a file": {"write_file": half_a_file},
    "after writing": {"written_by_all": after(lambda save, ranks: save.write())},
    "before the index": {"write_index": die},
    "after the index": {"write_index": after(write_sharded.write_index)},
    "in best": {"take_name": die},
    "after best": {"link_best": after(write_sharded.link_best)},
    "after the name": {"finish": after(write_sharded.Save.finish)},
}


def whole(value: float) -> torch.Tensor:
    return torch.arange(24, dtype=torch.float64).reshape(8, 3) + value


def state(rank: int, count: int, value: float) -> dict[str, Any]:
    """Rows of a weight and of its state on each rank, a buffer that differs, and what has no tensor."""
    rows = [int(at) for at in torch.linspace(0, 8, count + 1)]
    begin, end = rows[rank], rows[rank + 1]
    box = Box((begin, 0), (end - begin, 3))
    own = whole(value)[begin:end]
    return {
        "model": {
            "weight": RankShare((8, 3), own.dtype, ((box, own),)),
            "buffer": torch.tensor(rank + value),
            "tied": RankShare((), torch.float64, ((Box((), ()), torch.tensor(value, dtype=torch.float64)),)),
        },
        "optimizer": {
            "state": {0: {"momentum": RankShare((8, 3), own.dtype, ((box, own * 2),)), "step": torch.tensor(value)}},
            "param_groups": [{"lr": 0.1 + value, "betas": (0.9, 0.999), "clip": float("inf"), "params": [0]}],
        },
        "rng": {rank: {"torch": torch.full((5,), rank, dtype=torch.uint8)}},
        **({"scheduler": {}, "precision": {}, "progress": {"epoch": int(value)}, "tables": {}} if rank == 0 else {}),
    }
