"""Sums and counts on the device; ranks are added up once per interval, and only then divided."""

import time
from dataclasses import dataclass, fields
from functools import lru_cache
from typing import Any, NamedTuple

import torch
from torch import Tensor

from manyheads.runner.parallel.base.rank import Parallel

BOUND = 2**24  # logits kept for counting later; 64 MB in fp32
PATIENCE = 100  # batches kept for counting later
JUDGE_SECONDS = 0.25  # as often as the terminal shows an accuracy
PLACES = 5


@dataclass
class Sums:
    """Plain numbers, over the samples and updates of all ranks; seconds are summed over ranks too.

    judged: samples whose targets are class numbers, so that they have an accuracy. sampled_*: runner/loop/breakdown.py.
    """

    loss: float = 0.0
    count: float = 0.0
    correct1: float = 0.0
    correct5: float = 0.0
    judged: float = 0.0
    corrupt: float = 0.0
    seconds: float = 0.0
    data_seconds: float = 0.0
    logging_seconds: float = 0.0
    sampled_compute: float = 0.0
    sampled_communication: float = 0.0
    sampled_optimizer: float = 0.0
    sampled_logging: float = 0.0

    def add(self, other: "Sums") -> None:
        for name in NAMES:
            setattr(self, name, getattr(self, name) + getattr(other, name))

    def values(self) -> list[float]:
        """In the order of the fields."""
        return [*self.__dict__.values()]

    def means(self, prefix: str) -> dict[str, Any]:
        """Loss and accuracies in percent; an accuracy is None where the targets are no class numbers."""

        def share(part: float, whole: float, scale: float = 1.0) -> float | None:
            return scale * part / whole if whole else None

        return {
            f"{prefix}_loss": share(self.loss, self.count),
            f"{prefix}_acc1": share(self.correct1, self.judged, 100),
            f"{prefix}_acc5": share(self.correct5, self.judged, 100),
        }


NAMES = tuple(field.name for field in fields(Sums))


class Seen(NamedTuple):
    """What one update, or one batch of an evaluation, leaves behind: see Meter.add."""

    loss: Tensor
    logits: Tensor
    targets: Tensor
    samples: int

    @property
    def is_judged(self) -> bool:
        return self.logits.ndim == 2 and self.targets.ndim == 1 and not self.targets.is_floating_point()


class Meter:
    """Adds up one rank's batches, interval by interval; ``collect`` is the only exchange.

    A batch is only remembered at first, without waiting for the device: many are counted by few operations, which is
    what small models ask for.
    """

    def __init__(self, parallel: Parallel):
        self._parallel = parallel
        self._seen: list[Seen] = []
        self._limit = PATIENCE
        self._summed = 0  # of those seen the losses of so many have been added up
        self._judged_at = time.monotonic()
        self._open = Sums()
        self._closed: list[tuple[Sums, int]] = []  # with the number of those seen when it was closed

    def add(self, loss: Tensor, logits: Tensor, targets: Tensor, count: int) -> None:
        """loss: () mean over the ``count`` samples; logits: (count, classes); targets: (count,). No gradients."""
        if not self._seen:
            self._limit = min(PATIENCE, 1 + BOUND // max(1, logits.numel()))
        self._seen.append(Seen(loss, logits, targets, count))
        if len(self._seen) >= self._limit:
            self._add_up()
            self._judge()

    def note_corrupt(self, count: int) -> None:
        self._open.corrupt += count

    def close(self, **seconds: float) -> None:
        """An interval ends here. ``seconds``: fields of its Sums."""
        for name, value in seconds.items():
            setattr(self._open, name, value)
        self._closed.append((self._open, len(self._seen)))
        self._open = Sums()

    def collect(self, flags: dict[str, float], *, judge: bool = True) -> tuple[list[Sums], dict[str, float]]:
        """Sums over all ranks of each interval that has been closed, and of ``flags``. Waits for the device.

        ``judge``: whether accuracies must be complete; else they may follow with a later call.
        """
        self._add_up()
        if judge or time.monotonic() - self._judged_at > JUDGE_SECONDS:
            self._judge()
        own = [value for sums, _ in self._closed for value in sums.values()]
        numbers = torch.tensor([*own, *flags.values()], dtype=torch.float64).to(self._parallel.device)
        found = self._parallel.reduce(numbers).tolist()
        width = len(NAMES)
        intervals = [Sums(*found[start : start + width]) for start in range(0, len(own), width)]
        self._closed = []
        return intervals, dict(zip(flags, found[len(own) :], strict=True))

    def _add_up(self) -> None:
        """The losses; what was seen stays for ``_judge``."""
        if self._summed == len(self._seen):
            return
        losses = iter(torch.stack([seen.loss for seen in self._seen[self._summed :]]).tolist())
        for sums, end in [*self._closed, (self._open, len(self._seen))]:
            for seen in self._seen[self._summed : end]:
                sums.loss += next(losses) * seen.samples
                sums.count += seen.samples
            self._summed = max(self._summed, end)

    def _judge(self) -> None:
        """The accuracies, into the last interval that has been closed, and forget what was seen."""
        judged = [seen for seen in self._seen if seen.is_judged]
        sums = self._closed[-1][0] if self._closed else self._open
        if judged:
            targets = torch.cat([seen.targets for seen in judged])
            found = places(torch.cat([seen.logits for seen in judged]), targets).tolist()
            sums.correct1 += found[0]
            sums.correct5 += sum(found)
            sums.judged += len(targets)
        self._seen, self._summed = [], 0
        self._closed = [(sums, 0) for sums, _ in self._closed]
        self._judged_at = time.monotonic()


def places(logits: Tensor, targets: Tensor) -> Tensor:
    """Samples whose class comes first, second, ... fifth: (5,). Of equal logits the first class leads.

    logits: (N, classes); targets: (N,). Comparing is several times quicker than sorting (topk), and for NaN it says no.
    """
    classes, own = logits.shape[1], targets[:, None]
    numbers, first = _numbers(classes, logits.device)
    score = logits.gather(1, own)
    behind = (logits < score) | ((logits == score) & (numbers >= own))  # itself included
    return (behind.sum(1, keepdim=True) == first).sum(0)


@lru_cache
def _numbers(classes: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """The classes' numbers, and how many are behind each place, itself included."""
    behind = [classes - place if place < classes else -1 for place in range(PLACES)]
    return torch.arange(classes, device=device), torch.tensor(behind, device=device)
