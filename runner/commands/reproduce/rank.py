"""Compares the final weights of two runs."""

import math

from torch import Tensor

from manyheads.runner.checkpoint.rank.dtypes import as_real
from manyheads.runner.checkpoint.rank.lazy import real
from manyheads.runner.checkpoint.rank.load import largest_entry, load
from manyheads.runner.records.rounding import FLOOR, relative
from manyheads.runner.run.run_folder import RunFolder


def farthest_weight(recorded: RunFolder, now: RunFolder) -> tuple[str, float, float, float] | None:
    """The name of the tensor that differs most, its entries there in both runs, and their relative difference.

    Relative to the tensor's largest entry, or to the fraction FLOOR of the model's largest if that is more, since
    tensors that are nearly zero consist mostly of rounding. None if a checkpoint is missing.
    """
    if not (recorded.last_checkpoint.exists() and now.last_checkpoint.exists()):
        return None
    before, after = (real(load(folder.last_checkpoint)["model"]) for folder in (recorded, now))
    shapes = ({(name, tensor.shape) for name, tensor in weights.items()} for weights in (before, after))
    if unlike := sorted(name for name, _ in set.symmetric_difference(*shapes)):
        return f"{unlike[0]}, which are only in one or of a different shape,", 0.0, 0.0, math.inf
    floor = FLOOR * max(map(largest_entry, before.values()), default=0.0)
    compared = (
        (name, *_compared(as_real(before[name]).double(), as_real(after[name]).double(), floor)) for name in before
    )
    return max(compared, key=lambda one: one[-1], default=None)


def _compared(before: Tensor, after: Tensor, floor: float) -> tuple[float, float, float]:
    if not before.numel():
        return 0.0, 0.0, 0.0
    before, after = before.double(), after.double()
    apart = (after - before).abs()
    at = apart.argmax()
    size = max(largest_entry(before), largest_entry(after), floor)
    return float(before.flatten()[at]), float(after.flatten()[at]), relative(largest_entry(apart), size)
