"""What may slow down a rank on its machine, as the kernel and NVIDIA's driver count it."""

from typing import NamedTuple

from manyheads.runner.machine.core_time import CoreTime
from manyheads.runner.machine.disk_and_network import Segments, disk_seconds, link_speed, segments
from manyheads.runner.machine.gpus import slowed_seconds
from manyheads.runner.machine.numa import far_memory, is_far_from
from manyheads.runner.machine.processor_clock import hot_seconds


class Hindrances(NamedTuple):
    """Of one rank; 0 for what its machine does not count.

    ``clock``: MHz of its core, on average; ``hot``: seconds for which its cores had a lower clock because of heat;
    ``slowed``: the same of its GPU, because of heat or the limit of its power; ``far``: the fraction of its memory
    that is on another NUMA node than its cores; ``is_far``: whether its GPU is; ``disk``: seconds for which processes
    of its machine waited for a disk; ``segments``: TCP segments of its machine; ``link``: Mbit/s to other machines.
    """

    core: CoreTime
    clock: float = 0.0
    hot: float = 0.0
    slowed: float = 0.0
    far: float = 0.0
    is_far: bool = False
    disk: float = 0.0
    segments: Segments = Segments()
    link: int = 0

    @classmethod
    def now(cls, gpu: int | None) -> "Hindrances":
        """The values of this process now. ``gpu``: the driver's index of its GPU; None on CPUs."""
        return cls(
            CoreTime.now(),
            hot=hot_seconds(),
            slowed=0.0 if gpu is None else slowed_seconds(gpu),
            far=far_memory(),
            is_far=gpu is not None and is_far_from(gpu),
            disk=disk_seconds(),
            segments=segments(),
            link=link_speed(),
        )

    def since(self, before: "Hindrances") -> "Hindrances":
        """The values, with seconds and segments counted from ``before``."""
        old, new = before.segments, self.segments
        return self._replace(
            core=self.core.since(before.core),
            hot=self.hot - before.hot,
            slowed=self.slowed - before.slowed,
            disk=self.disk - before.disk,
            segments=Segments(new.sent - old.sent, new.resent - old.resent),
        )
