"""Whether a task's loss depends on how a batch is cut into parts, found on one rank by cutting one."""

import itertools

import torch

from manyheads.runner.data.rank.sampler import Request
from manyheads.runner.loop.session import Session
from manyheads.runner.parallel.rank.structure import call

PARTS = 3


def whole_and_parts(session: Session) -> list[float]:
    """The loss of the first micro-batch, and what its parts' losses come to, as updates weight them.

    In evaluation mode, in which dropout and BatchNorm let no sample know of the others.
    """
    request = next(session.trainer.train.sampler.epoch(0))
    size = request.count
    edges = [size * part // PARTS for part in range(PARTS + 1)]
    pieces = [request.indices[low:high] for low, high in itertools.pairwise(edges) if high > low]
    parts = [Request(request.epoch, piece, len(piece), len(piece) / size) for piece in pieces]
    return [_loss(session, each) for each in ([request._replace(weight=1.0)], parts)]


def _loss(session: Session, requests: list[Request]) -> float:
    update, loader = session.update, session.trainer.train
    batches = [loader.take(request) for request in requests]
    steps, model = update.micro_steps(batches, used=False), session.parallel.unwrap(update.model)
    is_training = model.training
    model.eval()
    try:
        with torch.no_grad(), update.precision.autocast():
            return sum(float(steps.objective(call(model, batch.inputs), batch)[0]) for batch in batches)
    finally:
        model.train(is_training)
