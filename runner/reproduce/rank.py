"""The final weights of two runs against each other."""

import math
from typing import Any

from manyheads.runner.checkpoint.rank import load
from manyheads.runner.reproduce.curves import Pair
from manyheads.runner.run.run_folder import RunFolder


def farthest_weight(recorded: RunFolder, now: RunFolder, *, step: int) -> Pair | None:
    """The tensor that is farthest apart, relative to its largest number; None where a checkpoint is not there.

    The floor is a hundredth of the model's largest number, since what is nearly zero is mostly rounding.
    """
    if not (recorded.last_checkpoint.exists() and now.last_checkpoint.exists()):
        return None
    before, after = (load(folder.last_checkpoint)["model"] for folder in (recorded, now))
    if unlike := sorted({*before} ^ {*after} | {name for name in {*before} & {*after} if _unlike(before, after, name)}):
        return Pair(f"weights {unlike[0]}, which are only in one or of another shape,", step, 0.0, 0.0, math.inf)
    largest = max((_size(value) for value in before.values()), default=0.0)
    found = [_pair(name, before[name].double(), after[name].double(), 0.01 * largest, step) for name in before]
    return max(found, key=lambda pair: pair.relative, default=None)


def _pair(name: str, before: Any, after: Any, floor: float, step: int) -> Pair:
    apart = _size(after - before)
    size = max(_size(before), _size(after), floor, 1e-300)
    relative = apart / size if math.isfinite(apart) and math.isfinite(size) else math.inf
    at = (after - before).abs().argmax() if before.numel() else None
    a, b = (float(value.flatten()[at]) if at is not None else 0.0 for value in (before, after))
    return Pair(f"weights {name}", step, a, b, relative)


def _size(value: Any) -> float:
    return float(value.double().abs().max()) if value.numel() else 0.0


def _unlike(before: dict[str, Any], after: dict[str, Any], name: str) -> bool:
    return before[name].shape != after[name].shape
