"""The checkpoints of a run: last.pt, best.pt and step_*.pt, or folders of sharded ones, by name.

Each folder has a new name, since a folder cannot replace another one atomically: step_00000020, best_00000020, and
step_00000020.2 if the same step was saved again.
"""

import re
from pathlib import Path
from typing import Any

from manyheads.runner.run.files import matching

StateDict = dict[str, Any]  # what objects with a state keep of it: tensors and plain values by name
INDEX = "index.json"  # of a sharded one
_NAME = re.compile(r"(step|best)_(\d{8,18})(?:\.(\d{1,9}))?(\.pt)?")


class Damaged(ValueError):
    """A damaged checkpoint; the message is a clause."""


def is_checkpoint(path: Path) -> bool:
    """Whether ``path`` looks like a checkpoint: a file, or a folder with an index."""
    return path.is_file() or (path / INDEX).is_file()


def last(checkpoints: Path) -> Path:
    """The checkpoint to resume from; last.pt if there is none."""
    return _newest([checkpoints / "last.pt", *folders(checkpoints, "step")[-1:]])


def best(checkpoints: Path) -> Path:
    """The checkpoint with the best weights; best.pt if there is none."""
    return _newest([checkpoints / "best.pt", *folders(checkpoints, "best")[-1:]])


def by_step(checkpoints: Path) -> dict[int, Path]:
    """The kept checkpoints, and a sharded last one, in the order of their steps."""
    files = [path for path in matching(checkpoints, "step_*.pt") if path.is_file()]
    paths = sorted([*files, *folders(checkpoints, "step")], key=_key)
    return {_key(path)[0]: path for path in paths if _key(path)[0] >= 0}


def folders(checkpoints: Path, kind: str) -> list[Path]:
    """The sharded checkpoints, in the order of their steps. ``kind``: "step" or "best"."""
    paths = [path for path in matching(checkpoints, f"{kind}_*") if path.is_dir()]
    return sorted((path for path in paths if _key(path)[0] >= 0 and path.suffix != ".pt"), key=_key)


def fresh(checkpoints: Path, kind: str, step: int) -> Path:
    """An unused path for a sharded checkpoint. ``kind``: "step" or "best"."""
    same = [number for saved_step, number in map(_key, folders(checkpoints, kind)) if saved_step == step]
    return checkpoints / (f"{kind}_{step:08}" + (f".{max(1, *same) + 1}" if same else ""))


def _key(path: Path) -> tuple[int, int]:
    """The step, and the number of the save at that step; (-1, 0) for any other name."""
    match = _NAME.fullmatch(path.name)
    return (int(match[2]), int(match[3] or 1)) if match else (-1, 0)


def _newest(paths: list[Path]) -> Path:
    """The first one, unless it is missing or another was written later: the format may have changed."""
    there = [path for path in paths if path.exists()]
    return max(there, key=lambda path: path.stat().st_mtime_ns) if there else paths[0]
