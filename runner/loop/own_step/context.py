"""What a step may ask of the loop: where training is, all ranks' tensors, noise, and weights that follow others."""

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from manyheads.runner.data.keys import sample_keys, splitmix
from manyheads.runner.data.rank.batches import Batch
from manyheads.runner.errors import ConfigurationError
from manyheads.runner.parallel.rank.parallel import Parallel
from manyheads.runner.parallel.rank.structure import rows_of

if TYPE_CHECKING:
    from manyheads.runner.loop.own_step.update import SteppingUpdate

_NOISE = 0x6E6F_6973_6500  # separates the keys of noise from those of samples


class StepContext:
    """The context of one micro-batch's step.

    ``step``: the number of updates before this one; ``epoch``: of the batch, from 0; ``progress``: the fraction of the
    run that is done, from 0 to 1; ``training``: false in an evaluation, where nothing is changed; ``gathered``: whether
    the step has used ``gather``; ``of``: the number of micro-batches in the update, of which this may be the last one.
    """

    def __init__(
        self, update: "SteppingUpdate", batch: Batch, step: int, *, training: bool, of: int = 1, is_last: bool = True
    ):
        self._update, self._batch, self._is_last, self._draws = update, batch, is_last, 0
        self._of = of
        self.step, self.epoch, self.training, self.gathered = step, batch.epoch, training, False
        self.progress = min(1.0, step / max(1, update.schedule.total_updates))

    def gather(self, tensor: Tensor) -> Tensor:
        """The tensors of all ranks in their order, joined along the first dimension; gradients flow to each of them.

        All ranks call it in the same order, with the same shape. The loss is then one of the global batch: it and its
        gradients do not depend on the number of ranks. In an evaluation, it returns ``tensor``. Raises
        ConfigurationError for a last, incomplete batch, of which ranks have different numbers of samples.
        """
        parallel, batch = self._update.parallel, self._batch
        if not self.training:
            return tensor
        self.gathered = True
        if not math.isclose(batch.weight * self._of, 1):
            raise ConfigurationError.at(
                "data.drop_last",
                False,
                ": context.gather needs batches of the same size on every rank. Set it to true.",
            )
        return tensor if parallel.data_size == 1 else _Gathered.apply(tensor, parallel)

    def randn(self, *shape: int) -> Tensor:
        """Normal noise (N, *shape) for the N samples of the batch, which depends on seed, epoch and sample only.

        So it is the same on any number of ranks, with any accumulation, and after a resume. Each call draws anew.
        """
        return self._drawn(shape, torch.special.ndtri)

    def rand(self, *shape: int) -> Tensor:
        """The same, uniform between 0 and 1, exclusively."""
        return self._drawn(shape, lambda uniform: uniform)

    def _drawn(self, shape: tuple[int, ...], transform: Callable[[Tensor], Tensor]) -> Tensor:
        update, rows = self._update, rows_of(self._batch.inputs)
        ids = self._batch.ids if len(self._batch.ids) == rows else np.zeros(rows, np.int64)
        keys = splitmix(sample_keys(update.seed ^ _NOISE, self.epoch, ids) ^ np.uint64(self._draws))
        self._draws += 1
        numbers = splitmix(keys[:, None] ^ np.arange(math.prod(shape), dtype=np.uint64))
        uniform = torch.from_numpy((numbers >> np.uint64(11)).astype(np.float64) * 2.0**-53 + 2.0**-54)
        drawn = transform(uniform).reshape(rows, *shape)
        return drawn.to(update.parallel.device, update.precision.dtype, non_blocking=True)

    def follow(self, teacher: str, source: str, *, decay: float) -> None:
        """Move a part of the model towards another, as an exponential moving average that keeps ``decay`` of itself.

        To be called after a ``yield``, when the optimizer has stepped; once per update, whatever the accumulation, and
        not after an update that was skipped. Computed in the precision of the checkpoint, fp32 or better; buffers are
        copied. Raises ConfigurationError for a teacher that is trained, or has parameters that its source lacks.
        """
        if self.training and self._is_last and not self._update.is_rejected:
            self._update.follow(teacher, source, decay)


class _Gathered(torch.autograd.Function):
    """The tensors of all data-parallel ranks, (ranks * N, ...); gradients are summed over ranks."""

    @staticmethod
    def forward(ctx: Any, tensor: Tensor, parallel: Parallel) -> Tensor:
        ctx.parallel = parallel
        together = tensor.new_zeros(parallel.data_size, *tensor.shape)
        together[parallel.data_rank] = tensor
        return parallel.reduce(together).flatten(0, 1)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        parallel = ctx.parallel
        total = parallel.reduce(gradient.contiguous().clone())
        return total.unflatten(0, (parallel.data_size, -1))[parallel.data_rank], None
