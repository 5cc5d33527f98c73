"""trainer.on_nan=skip: updates whose gradients are not finite are skipped."""

import torch
from torch import Tensor

from manyheads.runner.loop.guards.guard import Guard
from manyheads.runner.loop.update import Update
from manyheads.runner.parallel.rank.passes import ForwardResult


class NotFiniteGradients(Guard):
    """Rejects an update whose gradient norm is infinite or NaN, which all ranks see."""

    rejects = True

    def reject(self, update: Update, step: int, passes: list[ForwardResult], norm: Tensor) -> str | None:
        return None if torch.isfinite(norm) else "the gradients are not finite"
