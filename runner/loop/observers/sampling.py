"""A context in which a callback may call the model that is being trained, without changing the run."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from manyheads.runner.data.rank.rng import GENERATORS, restored, seed_sample
from manyheads.runner.errors import ConfigurationError
from manyheads.runner.loop.update import Update
from manyheads.runner.parallel.rank.parallel import Parallel
from manyheads.runner.parallel.rank.structure import map_tensors


@contextmanager
def sampling(update: Update, seed: int = 0, *, name: str, every_rank: bool) -> Iterator[Callable[..., Any]]:
    """The model of ``update`` in evaluation mode, without gradients, in the run's precision; see ``RunContext``.

    ``seed``: of this process's generators within the context, whose states are restored after it. ``name``,
    ``every_rank``: of the callback. Raises ConfigurationError where all ranks must call the model, and only one would.
    """
    parallel = update.parallel
    if parallel.evaluates_together and parallel.world_size > 1 and not every_rank:
        raise ConfigurationError(
            f"{name} calls the model on rank 0 alone, but each rank has a part of it. Let the callback set "
            "every_rank = True and call the model on every rank, or choose a strategy with whole models, such as "
            "parallel=ddp.",
            key="parallel",
        )
    model = update.model
    modes = [(module, module.training) for module in model.modules()]
    try:
        with restored(GENERATORS), torch.no_grad(), update.precision.autocast():
            seed_sample(seed)
            if parallel.device.type == "cuda":
                torch.cuda.manual_seed(seed)  # of the current device, which ``restored`` restores
            model.eval()
            yield partial(_evaluate, parallel, model) if parallel.evaluates_together else parallel.unwrap(model)
    finally:
        for module, mode in modes:
            module.training = mode


def _evaluate(parallel: Parallel, model: nn.Module, inputs: Any) -> Any:
    """The outputs for ``inputs`` on every rank, also those that have only the model's first part."""
    outputs = parallel.evaluate(model, inputs)
    if parallel.data_size == parallel.world_size:
        return outputs
    sent = map_tensors(Tensor.cpu, outputs) if parallel.counts_samples else None
    shares = parallel.gather((parallel.data_rank, sent))
    received = next(part for share, part in shares if share == parallel.data_rank and part is not None)
    return map_tensors(lambda tensor: tensor.to(parallel.device), received)
