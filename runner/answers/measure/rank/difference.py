"""Measures the differences between tensors of the same names."""

import itertools
import math
from collections.abc import Mapping

import torch
from torch import Tensor, nn

from manyheads.runner.checkpoint.rank.dtypes import as_real
from manyheads.runner.checkpoint.rank.load import largest_entry, weights_sha256
from manyheads.runner.data.rank.sampler import BatchIndices
from manyheads.runner.loop.session import Session
from manyheads.runner.records.rounding import FLOOR, relative


def differences(baseline: Mapping[str, Tensor | None], other: Mapping[str, Tensor | None]) -> dict[str, float]:
    """The relative difference of each tensor, max|a - b| / max|a|, by name; inf if anything is not finite.

    The denominator is at least FLOOR times the largest one, so that a gradient that is zero up to rounding raises no
    alarm. None stands for a tensor of zeros, such as the gradient of an unused parameter. Names that one side lacks
    differ by inf.
    """
    sizes = {name: largest_entry(a) for name, a in baseline.items() if a is not None}
    floor = FLOOR * max((size for size in sizes.values() if math.isfinite(size)), default=0.0)
    return {
        name: _difference(baseline[name], other[name], max(sizes.get(name, 0.0), floor))
        if name in baseline and name in other
        else math.inf
        for name in {**baseline, **other}
    }


def _difference(a: Tensor | None, b: Tensor | None, size: float) -> float:
    if a is None or b is None:
        other = a if b is None else b
        if other is None:
            return 0.0
        a, b = (torch.zeros_like(other) if x is None else x for x in (a, b))
    if a.shape != b.shape:
        return math.inf
    a, b = as_real(a), as_real(b)
    dtype = torch.float64 if a.is_floating_point() else a.dtype
    return relative(largest_entry(a.to(dtype) - b.to(dtype)), size)


def factor(baseline: Mapping[str, Tensor | None], other: Mapping[str, Tensor | None], tolerance: float) -> float | None:
    """The ratio of all this rank's tensors to the baseline's; None if there is no common one.

    Found by least squares, then verified for each tensor.
    """
    ours, theirs = ({n: None if t is None else as_real(t) for n, t in side.items()} for side in (other, baseline))
    both = [(a, b) for name, a in theirs.items() if a is not None and (b := ours.get(name)) is not None]
    pairs = [(a.double().flatten(), b.double().flatten()) for a, b in both if a.shape == b.shape]
    square = sum(float(a @ a) for a, _ in pairs)
    if not square or not math.isfinite(square):
        return None
    ratio = sum(float(a @ b) for a, b in pairs) / square
    scaled = {name: None if a is None else a.double() * ratio for name, a in theirs.items()}
    if not math.isfinite(ratio) or ratio == 0 or max(differences(scaled, ours).values()) > tolerance:
        return None
    return ratio


def digests(model: nn.Module) -> dict[str, dict[str, str]]:
    """Digests of all parameters and all buffers by name, including those that checkpoints omit."""
    return {
        "parameter": {name: weights_sha256({name: p}) for name, p in model.named_parameters()},
        "buffer": {name: weights_sha256({name: b}) for name, b in model.named_buffers()},
    }


def unlike(baseline: dict[str, dict[str, str]], other: dict[str, dict[str, str]]) -> dict[str, list[str]]:
    """The names whose digests differ, by kind."""
    return {
        kind: sorted(
            name
            for name in baseline[kind].keys() | other[kind].keys()
            if baseline[kind].get(name) != other[kind].get(name)
        )
        for kind in baseline
    }


PARTS = 3


def whole_and_parts(session: Session) -> tuple[float, float]:
    """The loss of the first micro-batch, and the sum of its parts' losses, as updates weight them.

    In evaluation mode, so that samples do not affect each other through BatchNorm, and dropout is off.
    """
    request = next(session.trainer.train.sampler.epoch(0))
    size = request.count
    edges = itertools.pairwise(size * part // PARTS for part in range(PARTS + 1))
    pieces = [request.indices[low:high] for low, high in edges if high > low]
    parts = [BatchIndices(request.epoch, piece, len(piece), len(piece) / size) for piece in pieces]
    return _loss(session, [request._replace(weight=1.0)]), _loss(session, parts)


def _loss(session: Session, requests: list[BatchIndices]) -> float:
    update, loader = session.update, session.trainer.train
    batches = [loader.take(request) for request in requests]
    steps, model = update.micro_steps(batches, used=False), session.parallel.unwrap(update.model)
    is_training = model.training
    model.eval()
    try:
        with torch.no_grad():
            passes = [(update.evaluate(update.model, batch), steps.weight(batch)) for batch in batches]
        return sum(float(passed.loss) * float(weight) for passed, weight in passes if passed is not None)
    finally:
        model.train(is_training)
