"""Replays the passes of a pipeline: which micro-batch each stage works on, and when."""

import math
from dataclasses import dataclass, replace

from manyheads.runner.answers.scale.simulator.replay import Arrival, Parts, Replay
from manyheads.runner.answers.scale.simulator.step import Unit
from manyheads.runner.answers.scale.simulator.timeline import COMPUTE, Timeline

ALL_FORWARD_FIRST = ("gpipe", "looped_bfs")


@dataclass(frozen=True)
class ChunkPass:
    """A pass of a micro-batch through a chunk of the model. Chunks are numbered in the order of the forward pass."""

    micro_batch: int
    chunk: int
    is_backward: bool


class PipelineSchedule:
    """Plays the passes of all stages. Of those that can begin first, a stage takes the one its schedule prefers."""

    def __init__(self, replay: Replay, chunks: list[tuple[Unit, ...]]):
        self.replay, self.chunks = replay, chunks
        self.stages = replay.exchanges.layout.pipeline
        self.count = replay.step.micro_batches
        self.forward_first = replay.exchanges.schedule in ALL_FORWARD_FIRST
        self.free = [0.0] * self.stages
        self.busy = [0.0] * self.stages
        self.ended: dict[ChunkPass, float] = {}
        ways = [(chunk, is_backward) for chunk in range(len(chunks)) for is_backward in (False, True)]
        self.next = {way: ChunkPass(0, *way) for way in ways}  # micro-batches pass through each chunk in their order
        self.seconds = {way: self._seconds(*way) for way in ways}
        self.sending = [replay.seconds("send", chunk[-1].activations, replay.stage) for chunk in chunks]

    def _seconds(self, chunk: int, is_backward: bool) -> float:
        """The seconds of a pass, including its all-reduces of activations over the tensor group."""
        step, exchanges, units = self.replay.step, self.replay.exchanges, self.chunks[chunk]
        total = step.backward if is_backward else step.forward
        sums = sum(self.replay.seconds("all-reduce", unit.activations, self.replay.tensor) for unit in units)
        share = sum(unit.share for unit in units) / exchanges.layout.tensor
        return total * share + sums * (exchanges.activation_sums // 2)

    def ready(self, task: ChunkPass) -> float:
        """When the inputs of a pass are ready; infinite if that is not known yet."""
        if task.is_backward:
            forward_end = self.ended.get(replace(task, is_backward=False), math.inf)
            if task.chunk == len(self.chunks) - 1:
                return forward_end
            before = self.ended.get(replace(task, chunk=task.chunk + 1), math.inf)
            return max(forward_end, before + self.sending[task.chunk])
        held = task.micro_batch - self.next[task.chunk, True].micro_batch
        if not self.forward_first and held >= len(self.chunks) - task.chunk:
            return math.inf  # 1f1b: no more micro-batches in flight than stages from here to the end
        if task.chunk == 0:
            return 0.0
        return self.ended.get(replace(task, chunk=task.chunk - 1), math.inf) + self.sending[task.chunk - 1]

    def run(self) -> float:
        """Play all passes; return the time at which the last one ends."""
        for _ in range(self.count * len(self.next)):
            start, _, way = min(
                (max(self.free[way[0] % self.stages], self.ready(task)), self._rank(task), way)
                for way, task in self.next.items()
                if task.micro_batch < self.count
            )
            task, stage = self.next[way], way[0] % self.stages
            self.ended[task] = self.free[stage] = start + self.seconds[way]
            self.busy[stage] += self.seconds[way]
            self.next[way] = replace(task, micro_batch=task.micro_batch + 1)
        return max(self.free)

    def _rank(self, task: ChunkPass) -> tuple[bool, int, int]:
        """The priority of a pass: the smallest comes first."""
        return (task.is_backward == self.forward_first, task.micro_batch, task.chunk)


def pipelined(replay: Replay) -> Parts:
    """The parts of an update of a pipeline, whose stages reduce gradients over replicas after all passes."""
    layout = replay.exchanges.layout
    chunks = balanced(replay.step.units, layout.pipeline * replay.exchanges.stages_per_rank)
    schedule = PipelineSchedule(replay, chunks)
    end = schedule.run()
    busiest = max(range(layout.pipeline), key=lambda stage: schedule.busy[stage])
    replay.timeline = Timeline()
    replay.timeline.run(COMPUTE, "passes", schedule.busy[busiest])
    held = sum(
        unit.bytes for number, chunk in enumerate(chunks) for unit in chunk if number % layout.pipeline == busiest
    )
    start = replay.timeline.free(COMPUTE)
    replay.reduce([Arrival(start, start, held / layout.tensor * replay.exchanges.gradient_scale)])
    return replace(replay.conclude(), idle=end - schedule.busy[busiest])


def balanced(units: tuple[Unit, ...], count: int) -> list[tuple[Unit, ...]]:
    """The units in at most ``count`` consecutive chunks with about equal computing, none of them empty."""
    count = min(count, len(units))
    total = sum(unit.share for unit in units)
    chunks: list[list[Unit]] = [[] for _ in range(count)]
    at, passed = 0, 0.0
    for number, unit in enumerate(units):
        middle = passed + unit.share / 2
        left = len(units) - number
        if chunks[at] and at < count - 1 and (middle > total * (at + 1) / count or left <= count - 1 - at):
            at += 1
        chunks[at].append(unit)
        passed += unit.share
    return [tuple(chunk) for chunk in chunks]
