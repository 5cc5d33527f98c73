"""Sums and counts on the device; ranks are added up once per interval, and only then divided."""

from dataclasses import dataclass, fields
from typing import Any

import torch
from torch import Tensor

from runner.parallel.base import Parallel

BOUND = 2**24  # logits kept for counting later; 64 MB in fp32


@dataclass
class Sums:
    """Plain numbers, over the samples and updates of all ranks; seconds are summed over ranks too.

    judged: samples whose targets are class numbers, so that they have an accuracy.
    """

    loss: float = 0.0
    count: float = 0.0
    correct1: float = 0.0
    correct5: float = 0.0
    judged: float = 0.0
    corrupt: float = 0.0
    seconds: float = 0.0
    data_seconds: float = 0.0

    def add(self, other: "Sums") -> None:
        for name in (f.name for f in fields(self)):
            setattr(self, name, getattr(self, name) + getattr(other, name))

    def means(self, prefix: str) -> dict[str, Any]:
        """Loss and accuracies in percent; an accuracy is None where the targets are no class numbers."""

        def share(part: float, whole: float, scale: float = 1.0) -> float | None:
            return scale * part / whole if whole else None

        return {
            f"{prefix}_loss": share(self.loss, self.count),
            f"{prefix}_acc1": share(self.correct1, self.judged, 100),
            f"{prefix}_acc5": share(self.correct5, self.judged, 100),
        }


class Meter:
    """Adds up one rank's batches without waiting for the device; ``collect`` is the only exchange."""

    def __init__(self, parallel: Parallel):
        self._parallel = parallel
        self._loss = torch.zeros((), dtype=torch.float64, device=parallel.device)
        self._counted = torch.zeros(3, dtype=torch.float64, device=parallel.device)
        self._logits: list[Tensor] = []
        self._targets: list[Tensor] = []
        self._kept = 0
        self._count = self._corrupt = 0

    def add(self, loss: Tensor, logits: Tensor, targets: Tensor, count: int) -> None:
        """loss: () mean over the ``count`` samples; logits: (count, classes); targets: (count,)."""
        self._loss.add_(loss.detach(), alpha=count)
        self._count += count
        if logits.ndim == 2 and targets.ndim == 1 and not targets.is_floating_point():
            self._logits.append(logits.detach())
            self._targets.append(targets)
            self._kept += logits.numel()
            if self._kept > BOUND:
                self._judge()

    def note_corrupt(self, count: int) -> None:
        self._corrupt += count

    def collect(self, *, seconds: float = 0.0, data_seconds: float = 0.0, **flags: float) -> tuple[Sums, dict]:
        """Sums over all ranks since the last call, and those of ``flags``. Waits for the device."""
        self._judge()
        host = [self._corrupt, seconds, data_seconds, *flags.values()]
        numbers = torch.tensor([self._count, *host], dtype=torch.float64).to(self._loss.device)
        values = self._parallel.reduce(torch.cat([self._loss[None], self._counted, numbers])).tolist()
        self._loss.zero_()
        self._counted.zero_()
        self._count = self._corrupt = 0
        loss, correct1, correct5, judged, count, corrupt, seconds, data_seconds, *rest = values
        sums = Sums(loss, count, correct1, correct5, judged, corrupt, seconds, data_seconds)
        return sums, dict(zip(flags, rest, strict=True))

    def _judge(self) -> None:
        if self._logits:
            logits, targets = torch.cat(self._logits), torch.cat(self._targets)
            self._logits, self._targets, self._kept = [], [], 0
            self._counted += correct_counts(logits, targets)


def correct_counts(logits: Tensor, targets: Tensor) -> Tensor:
    """Samples whose class is the first, or among the first five, and all samples: (3,) float64.

    logits: (N, classes); targets: (N,). Of fewer than five classes all count for the second.
    """
    best = logits.topk(min(5, logits.shape[1]), dim=1).indices
    hits = (best == targets[:, None]).double()
    return torch.stack([hits[:, 0].sum(), hits.sum(), hits.new_tensor(float(len(targets)))])
