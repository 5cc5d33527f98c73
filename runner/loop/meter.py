"""Sums and counts on the device; ranks are added up once per interval, and only then divided."""

import time
from dataclasses import dataclass, field, fields
from operator import attrgetter

import torch

from manyheads.runner.loop.scores import Scores, Statistics, exact_parts
from manyheads.runner.parallel.rank.parallel import Parallel
from manyheads.runner.parallel.rank.passes import ForwardResult
from manyheads.runner.parallel.rank.structure import tensors_in
from manyheads.runner.run.tables.columns import TRAINING

BOUND = 2**24  # numbers kept for adding up later; 64 MB in fp32
PATIENCE = 400  # batches kept for adding up later
ADD_UP_SECONDS = 0.25  # as often as the terminal shows a metric


@dataclass
class Sums:
    """Plain numbers, over the samples and updates of all ranks; seconds are summed over ranks too.

    count: samples; counted: what the loss is averaged over, such as tokens. sampled_*: observers/breakdown.py;
    taken*: runner/data/keys.py. loss_rest: what ``loss`` leaves out, so that both are exact (exact_parts).
    """

    loss: float = 0.0
    count: float = 0.0
    counted: float = 0.0
    corrupt: float = 0.0
    seconds: float = 0.0
    data_seconds: float = 0.0
    logging_seconds: float = 0.0
    sampled_compute: float = 0.0
    sampled_communication: float = 0.0
    sampled_optimizer: float = 0.0
    sampled_logging: float = 0.0
    loss_rest: float = 0.0
    taken: float = 0.0
    taken_low: float = 0.0
    taken_high: float = 0.0
    statistics: Statistics = field(default_factory=dict)

    @property
    def whole_loss(self) -> float:
        return self.loss + self.loss_rest

    def add(self, other: "Sums") -> None:
        values, others = vars(self), vars(other)
        for name in NAMES:
            values[name] += others[name]
        self.add_statistics(other.statistics)

    def take(self, times: dict[str, float]) -> None:
        """Set these fields."""
        for name, value in times.items():
            setattr(self, name, value)

    def leave_out_measured(self) -> None:
        """Forget losses and statistics, but not how many samples were taken."""
        self.loss = self.loss_rest = self.counted = 0.0
        self.statistics = {}

    def add_statistics(self, other: Statistics) -> None:
        for name, value in other.items():
            self.statistics[name] = self.statistics[name] + value if name in self.statistics else value

    def values(self) -> tuple[float, ...]:
        """All but the statistics, in the order of NAMES."""
        return VALUES(self)


SAMPLED = tuple(f"sampled_{part}" for part in TRAINING[1:])
NAMES = tuple(field.name for field in fields(Sums) if field.name != "statistics")
VALUES = attrgetter(*NAMES)


def parts(sums: Sums, seconds: float) -> dict[str, float]:
    """Divide ``seconds`` of training into data, compute, communication, optimizer and logging."""
    if not sums.seconds:
        return dict.fromkeys(TRAINING, 0.0)
    rest = max(0.0, sums.seconds - sums.data_seconds - sums.logging_seconds)
    sampled = {name.removeprefix("sampled_"): getattr(sums, name) for name in SAMPLED}
    total = sum(sampled.values())
    times = {name: rest * (part / total if total else name == "compute") for name, part in sampled.items()}
    times["logging"] += sums.logging_seconds
    scale = seconds / sums.seconds  # from all ranks together to one
    return {"data": scale * sums.data_seconds} | {name: scale * part for name, part in times.items()}


class Meter:
    """Adds up one rank's batches, interval by interval; ``collect`` is the only exchange.

    Batches are kept at first, without waiting for the device, and then counted many at once, since for small models
    the number of operations matters.
    """

    def __init__(self, parallel: Parallel, scores: Scores):
        self._parallel, self._scores = parallel, scores
        self._passed: list[ForwardResult] = []
        self._limit = PATIENCE
        self._summed = 0  # how many of them have had their losses added up
        self._added_up_at = time.monotonic()
        self._open = Sums()
        self._closed: list[tuple[Sums, int]] = []  # with the number of those passed when it was closed
        self._statistics = scores.flatten({})  # added up since the last exchange
        self.by_rank = torch.zeros(parallel.world_size, len(NAMES), dtype=torch.float64)  # what was collected last

    def add(self, passed: ForwardResult) -> None:
        """Count a forward pass. If several ranks have the same samples, only one of them counts."""
        if not self._parallel.counts_samples:
            return
        if not self._passed:
            size = sum(tensor.numel() for tensor in tensors_in(passed.observed))
            self._limit = min(PATIENCE, 1 + BOUND // max(1, size))
        self._passed.append(passed)
        if len(self._passed) >= self._limit:
            self._add_losses()
            self._add_statistics()

    def note_corrupt(self, count: int) -> None:
        self._open.corrupt += count * self._parallel.counts_samples

    def close(self, **seconds: float) -> Sums:
        """End the interval and return its sums, of which ``seconds`` are fields; others may be set later."""
        closed, self._open = self._open, Sums()
        closed.take(seconds)
        self._closed.append((closed, len(self._passed)))
        return closed

    def collect(self, flags: dict[str, float], *, complete: bool = True) -> tuple[list[Sums], dict[str, float]]:
        """Sums over all ranks of each interval that has been closed, and of ``flags``. Waits for the device.

        The last interval has the statistics of all that is new; unless ``complete``, some may follow with a later call.
        """
        self._add_losses()
        if complete or time.monotonic() - self._added_up_at > ADD_UP_SECONDS:
            self._add_statistics()
        closed, self._closed = [sums for sums, _ in self._closed], []
        numbers = torch.tensor([*(v for s in closed for v in s.values()), *flags.values()], dtype=torch.float64)
        ranks = torch.zeros(self._parallel.world_size, len(numbers), dtype=torch.float64)
        ranks[self._parallel.rank % len(ranks)] = numbers
        reduced = self._parallel.reduce(torch.cat([ranks.flatten(), self._statistics]).to(self._parallel.device)).cpu()
        # The order in which an exchange adds up depends on its size. So the ranks' numbers are gathered and added up
        # here, where a row is the same whichever others it was exchanged with.
        of_ranks = reduced[: ranks.numel()].view(ranks.shape)
        added_up, *others = of_ranks
        for other in others:
            added_up = added_up + other
        plain = added_up.tolist()
        width = len(NAMES)
        self.by_rank = of_ranks[:, : width * len(closed)].reshape(len(of_ranks), len(closed), width).sum(1)
        intervals = [Sums(*plain[start : start + width]) for start in range(0, width * len(closed), width)]
        if intervals:
            intervals[-1].statistics = self._scores.unflatten(reduced[ranks.numel() :])
            self._statistics = self._scores.flatten({})
        return intervals, dict(zip(flags, plain[width * len(closed) :], strict=True))

    def _add_losses(self) -> None:
        """Add up losses and counts. The passes are kept for ``_add_statistics``."""
        if self._summed == len(self._passed):
            return
        first, new = self._summed, self._passed[self._summed :]
        losses = torch.stack([passed.loss for passed in new]).cpu().double()
        scales = torch.tensor([passed.scale for passed in new], dtype=torch.float64)
        heads, rests = (part.tolist() for part in exact_parts(losses * scales))
        for sums, end in [*self._closed, (self._open, len(self._passed))]:
            window = slice(self._summed - first, end - first)
            sums.loss += sum(heads[window])
            sums.loss_rest += sum(rests[window])
            sums.count += sum(passed.samples for passed in new[window])
            sums.counted += sum(passed.counted for passed in new[window])
            self._summed = end

    def _add_statistics(self) -> None:
        """Add up statistics, and forget the passes."""
        if self._passed:
            statistics = self._scores.add_up([passed.observed for passed in self._passed])
            self._statistics = self._statistics + self._scores.flatten(statistics)
        self._passed, self._summed = [], 0
        self._closed = [(sums, 0) for sums, _ in self._closed]
        self._added_up_at = time.monotonic()
