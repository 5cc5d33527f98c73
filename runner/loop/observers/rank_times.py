"""What each rank spent its time on, and which ranks the others waited for, always or once.

The numbers of all ranks are in every exchange of log windows, so that nothing else is measured or sent. With strategies
whose ranks communicate within their passes, only the waiting for data is known by rank.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean, median_low
from typing import Any

import torch
from torch import Tensor

from manyheads.runner.loop.meter import NAMES, Sums, parts
from manyheads.runner.loop.observers.observer import Observer
from manyheads.runner.loop.progress import Progress
from manyheads.runner.machine import hardware
from manyheads.runner.machine.hindrances import Hindrances, clock
from manyheads.runner.parallel.rank.parallel import Parallel
from manyheads.runner.run.json_types import ResultJson, SlowRankJson
from manyheads.runner.run.slow_ranks import OWN, cause
from manyheads.runner.run.tables.columns import TRAINING

INTERVAL = 2.0  # seconds, at least, that are judged together
RATIO = 1.3  # a rank is slow if it takes this many times as long as most ranks
NOTED = 3  # intervals in a row after which a slow rank is reported while training
SECONDS = NAMES.index("seconds")


@dataclass
class Slow:
    """A rank that others waited for, in ``intervals``. ``longer``: seconds for which it took longer, by part."""

    rank: int
    intervals: int = 0
    in_a_row: int = 0
    longer: dict[str, float] = field(default_factory=dict)

    @property
    def seconds(self) -> float:
        return sum(self.longer.values())

    @property
    def part(self) -> str:
        """The part for which it took most of that time."""
        return max(self.longer, key=lambda part: self.longer[part])


class RankTimes(Observer):
    """Adds up the times of each of these ``ranks`` in this session, in ``intervals`` of some seconds.

    ``gather``: as ``Parallel.gather``; ``say``: shows a message; ``gpu``: the driver's index of this rank's GPU.
    """

    def __init__(
        self,
        ranks: int,
        gather: Callable[[Any], list[Any]],
        say: Callable[[str], None],
        gpu: int | None = None,
    ):
        self._gather, self._say = gather, say
        self._open = torch.zeros(ranks, len(NAMES), dtype=torch.float64)
        self.seconds = [dict.fromkeys(TRAINING, 0.0) for _ in range(ranks)]
        self.intervals = 0
        self.slow: dict[int, Slow] = {}
        self._gpu, self._before = gpu, Hindrances.now(gpu)
        self._clocks: list[float] = []  # of this rank, once in each interval

    @classmethod
    def of(cls, parallel: Parallel, say: Callable[[str], None]) -> "RankTimes":
        """The observer of a run with several ranks."""
        device = parallel.device
        gpu = hardware.gpu_index(device.index) if device.type == "cuda" else None
        return cls(parallel.world_size, parallel.gather, say, gpu)

    def exchanged(self, progress: Progress, by_rank: Tensor) -> None:
        if warning := self.add(by_rank):
            self._say(warning)

    def concluding(self) -> Mapping[str, Any]:
        return self.result(self._gather(self.hindrances()))

    def add(self, by_rank: Tensor) -> str | None:
        """Count the sums of an exchange, (ranks, NAMES); returns a warning once a rank has been slow for some time."""
        self._open += by_rank
        sums = [Sums(*row) for row in self._open.tolist()] if float(self._open[0, SECONDS]) >= INTERVAL else []
        if not (sums and all(rank_sums.sampled_compute for rank_sums in sums)):
            return None
        self._open.zero_()
        self._clocks.append(clock())
        times = [parts(rank_sums, rank_sums.seconds) for rank_sums in sums]
        for totals, rank_times in zip(self.seconds, times, strict=True):
            for part, value in rank_times.items():
                totals[part] += value
        self._judge(times)
        late = next((slow for slow in self.slow.values() if slow.in_a_row == NOTED), None)
        if late is None:
            return None
        return f"warning: rank {late.rank} is slow, mostly {OWN[late.part]}, and the others wait for it"

    def _judge(self, times: Sequence[Mapping[str, float]]) -> None:
        self.intervals += 1
        own_seconds = [sum(rank_times[part] for part in OWN) for rank_times in times]
        usual = median_low(own_seconds)
        for rank, seconds in enumerate(own_seconds):
            if seconds <= RATIO * usual:
                if rank in self.slow:
                    self.slow[rank].in_a_row = 0
                continue
            slow = self.slow.setdefault(rank, Slow(rank))
            slow.intervals += 1
            slow.in_a_row += 1
            for part in OWN:
                longer = times[rank][part] - median_low([rank_times[part] for rank_times in times])
                slow.longer[part] = slow.longer.get(part, 0.0) + longer

    # -- at the end ----------------------------------------------------------------------------------

    def hindrances(self) -> Hindrances:
        """The counts of this rank's machine over this session."""
        hindrances = Hindrances.now(self._gpu).since(self._before)
        return hindrances._replace(clock=fmean(self._clocks) if self._clocks else 0.0)

    def result(self, hindrances: Sequence[Hindrances]) -> ResultJson:
        """The part of result.json about slow ranks, with the seconds of all by part. ``hindrances``: of each rank."""
        slow: list[SlowRankJson] = [
            {
                "rank": rank.rank,
                "intervals": rank.intervals,
                "of": self.intervals,
                "seconds": rank.seconds,
                "part": rank.part,
                "cause": self._cause(rank, hindrances),
            }
            for rank in sorted(self.slow.values(), key=lambda rank: -rank.seconds)
        ]
        return {
            "rank_seconds": {part: [totals[part] for totals in self.seconds] for part in TRAINING},
            "slow_ranks": slow,
        }

    def _cause(self, slow: Slow, hindrances: Sequence[Hindrances]) -> str:
        seconds = sum(self.seconds[slow.rank].values())
        return cause(slow.part, hindrances[slow.rank], hindrances, seconds=seconds, longer=slow.seconds)
