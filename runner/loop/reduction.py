"""Whether the loss of a user's own task returns what the task declares: the sum over a batch, or the mean.

The loss is computed again, from the outputs as they are and from their halves: sums add up, means average, and what
does neither is a number of the whole batch. Without another forward pass, and without a trace in random generators.
"""

import math
from typing import Any, NamedTuple

import torch
from torch import Tensor

from manyheads.runner.data.rank.rng import get_state, set_state
from manyheads.runner.errors import ConfigurationError
from manyheads.runner.parallel.rank.structure import chunks, map_tensors, tensors_in
from manyheads.runner.task.rank.task import Task

EXACT = 1e-4  # relative difference of two computations of one loss in fp32
LEAST = 1e-2  # terms of losses below this may cancel


class Readings(NamedTuple):
    """The losses of a batch and of its halves, and how much each half counts."""

    whole: float
    parts: list[float]
    counts: list[float]


def refuse_other_reduction(task: Task, outputs: Any, batch: Any) -> None:
    """Raises ConfigurationError if an own task's loss of this batch is not what its ``reduction`` declares."""
    kind = type(task)
    if kind.__module__.startswith("manyheads.") or task.reduction == "batch":
        return
    read = _readings(task, outputs, batch)
    if read is None or task.reduction in (reductions := _reductions(read)):
        return
    name, values = f"{kind.__module__}.{kind.__qualname__}", f"{read.whole:.6g}; of its halves, {_listed(read.parts)}"
    if reductions:
        raise ConfigurationError.at(
            "task._target_",
            name,
            f": its loss returns the {reductions[0]} over a batch, and it declares the {task.reduction}, which makes "
            f'gradients wrong by a factor: of a batch it is {values}. Add reduction = "{reductions[0]}" to the class.',
        )
    raise ConfigurationError.at(
        "task._target_",
        name,
        f": its loss is neither the sum nor the mean over a batch: it is {values}. If it averages over something else "
        "than samples, such as tokens, let count(batch) return their number. If it compares samples with one another, "
        'or divides sums over the batch, as contrastive and dice losses do, add reduction = "batch" to the class: it '
        "then depends on the size of micro-batches and on the number of ranks.",
    )


def _readings(task: Task, outputs: Any, batch: Any) -> Readings | None:
    """What the loss returns; None if outputs can't be divided by samples, or if it draws random numbers."""
    rows = {len(tensor) if tensor.ndim else 0 for tensor in tensors_in(outputs)}
    first = next(tensors_in(batch), None)
    if len(rows) != 1 or min(rows) < 2 or first is None or not first.ndim or {len(first)} != rows:
        return None
    attributes, buffers, state = dict(vars(task)), [tensor.clone() for tensor in task.buffers()], get_state()
    try:
        with torch.no_grad(), torch.autocast(first.device.type, enabled=False):
            outputs = map_tensors(_in_single, outputs)
            halves = list(zip(chunks(outputs, 2), chunks(batch, 2), strict=True))
            full, again, *parts = (float(task.loss(*pair)) for pair in ((outputs, batch), (outputs, batch), *halves))
            counts = [_count(task, half) for _, half in halves]
    except Exception:  # the loss needs the whole batch, or gradients
        return None
    finally:
        set_state(state)
        vars(task).update(attributes)
        for buffer, before in zip(task.buffers(), buffers, strict=True):
            buffer.copy_(before)
    is_known = full == again and all(map(math.isfinite, (full, *parts))) and all(counts)
    return Readings(full, parts, counts) if is_known else None


def _count(task: Task, batch: Any) -> float:
    return float(len(next(tensors_in(batch))) if task.counts_samples else task.count(map_tensors(Tensor.cpu, batch)))


def _reductions(read: Readings) -> list[str]:
    """The reductions that the losses are in accord with."""
    mean = sum(map(math.prod, zip(read.parts, read.counts, strict=True))) / sum(read.counts)
    largest = max(LEAST, *map(abs, (read.whole, *read.parts)))
    values = {"sum": sum(read.parts), "mean": mean}
    return [name for name, value in values.items() if abs(value - read.whole) <= EXACT * largest]


def _in_single(tensor: Tensor) -> Tensor:
    """Outputs without gradients, in at least single precision, so that losses can be compared."""
    return tensor.detach().float() if tensor.is_floating_point() and tensor.itemsize < 4 else tensor.detach()


def _listed(values: list[float]) -> str:
    return " and ".join(f"{value:.6g}" for value in values)
