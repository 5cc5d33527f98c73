"""How many CPU threads a rank computes with, where the config leaves it to the ranks: decided once per run.

On more cores than it can use, a small model trains more slowly: each operation wakes the other threads and waits for
the last of them, which takes long if another program has its core. The rule counts the work of an operation, which is
the same at each start and on each rank. Measuring is only done on request: on a busy machine it may decide differently
each time, and the number of threads changes how sums are rounded (docs/busy-machines.md).
"""

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from statistics import median
from typing import Any

import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry

from manyheads.runner.data.rank.batches import Batch
from manyheads.runner.data.rank.loader import Loader
from manyheads.runner.loop.observers.observer import Observer
from manyheads.runner.loop.prepare import Prepared
from manyheads.runner.loop.progress import Progress
from manyheads.runner.loop.reporter import Reporter
from manyheads.runner.loop.update import Update
from manyheads.runner.parallel.rank.parallel import Parallel
from manyheads.runner.parallel.rank.structure import call, map_tensors
from manyheads.runner.run.run_folder import RunFolder

log = logging.getLogger(__name__)
# FLOPs of matrix products for which a thread is worth waking, found on idle cores: products of 1 to 14 million take as
# long with two threads as with one, or up to 1.5 times as long; from 22 million on two are faster.
WORTH = 1e7
CONVOLUTIONS = 8  # FLOPs of a convolution take about this many times as long as those of a matrix product
LOADER_FROM = 4  # cores of a rank from which on one is left to loader processes
SAMPLES = 2  # whose forward pass is counted
MEASURE, ROUNDS, ENOUGH = "measure", 5, 1.1  # the fewest threads within 10 % of the fastest


def decided(parallel: Parallel, prepared: Prepared, folder: RunFolder, *, by: str, most: int) -> "list[Measuring]":
    """Use as many threads as an earlier session decided, else as the rule says; returns what measures, if asked.

    ``prepared``: before the strategy divides the model; ``by``: "auto" or "measure"; ``most``: threads. The rule also
    decides where no passes can be measured alone: of a task with its own step, or a strategy that steps within backward
    passes.
    """
    train = prepared.loaders.train
    if (chosen := folder.chosen_threads()) is not None:
        torch.set_num_threads(chosen)
        return []
    work = work_per_operation(prepared.model, train)
    threads = most_worth(work, cores=most, loaders=train.processes)
    if by == MEASURE and not (prepared.task.has_step or parallel.backward_steps):
        torch.set_num_threads(threads)
        return [Measuring(most, train.example, folder)]
    _settle(threads, folder if parallel.records else None, {"most": most, "by": "auto", "work": work})
    return []


def most_worth(work: float | None, *, cores: int, loaders: int) -> int:
    """The number of threads for operations of this ``work``, in FLOPs; None if it is unknown.

    ``loaders``: the most loader processes. The first one gets a core of its own if that takes at most a quarter of the
    threads; more of them only start while the rank waits, and uses none.
    """
    free = cores - 1 if loaders and cores >= LOADER_FROM else cores
    return free if work is None else max(1, min(free, int(work / WORTH)))


def work_per_operation(model: nn.Module, train: Loader) -> float | None:
    """FLOPs of the products and convolutions in a forward pass over a micro-batch, divided by their number.

    Those of convolutions count CONVOLUTIONS times. None if there are none, or if the model can't be followed on torch's
    meta device, where tensors have shapes but no values.
    """
    try:
        samples = len(next(train.sampler.epoch(0)).indices)
        flops = _products(model, train.first(SAMPLES))
    except Exception as error:  # whatever a model does that needs values
        log.info("the work of the model's operations is unknown, so all threads are used: %s", error)
        return None
    return sum(flops) / len(flops) * samples / min(SAMPLES, train.samples) if flops else None


def _products(model: nn.Module, inputs: Any) -> Sequence[float]:
    """The work of each product in a forward pass; a copy of the model makes it, as it may keep tensors."""
    hollow = {id(tensor): torch.empty_like(tensor, device="meta") for tensor in (*model.parameters(), *model.buffers())}
    copied, inputs = deepcopy(model, {**hollow}), map_tensors(lambda tensor: tensor.to("meta"), inputs)
    with torch.no_grad(), torch.device("meta"), _Counted() as counted:
        call(copied, inputs)
    return counted.flops


class _Counted(TorchDispatchMode):
    """A context that notes the work of each product."""

    def __init__(self) -> None:
        super().__init__()
        self.flops: list[float] = []

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        outputs = func(*args, **(kwargs or {}))
        packet = func.overloadpacket
        if (count := flop_registry.get(packet)) is not None:
            weight = CONVOLUTIONS if "convolution" in str(packet) else 1
            self.flops.append(weight * count(*args, **(kwargs or {}), out_val=outputs))
        return outputs


class Measuring(Observer):
    """Before training starts, times passes with one thread and with ``most`` in turn, and chooses.

    ``example``: makes a micro-batch; ``folder``: of the run. The passes are thrown away.
    """

    def __init__(self, most: int, example: Callable[[], Batch], folder: RunFolder):
        self._most, self._example, self._folder = most, example, folder

    def attached(self, update: Update, reporter: Reporter) -> "Measuring":
        """Itself, once what it measures is built."""
        self._update, self._say = update, reporter.display.say
        return self

    def start(self, progress: Progress) -> None:
        batch, parallel = self._example(), self._update.parallel
        seconds: dict[int, list[float]] = {1: [], self._most: []}
        for _ in range(ROUNDS):
            for threads, rounds in seconds.items():
                torch.set_num_threads(threads)
                self._update.prime(lambda: batch, warm_up=True)  # wakes the threads
                began = time.perf_counter()
                self._update.prime(lambda: batch, warm_up=True)
                rounds.append(time.perf_counter() - began)
        by_rank = parallel.gather({threads: median(rounds) for threads, rounds in seconds.items()})
        slowest = {threads: max(times[threads] for times in by_rank) for threads in seconds}
        threads = fewest(slowest)
        how = {"most": self._most, "by": MEASURE, "seconds": slowest}
        _settle(threads, self._folder if parallel.records else None, how)
        times = " and ".join(f"{1000 * value:.3g} ms with {count}" for count, value in slowest.items())
        self._say(f"CPU threads per rank: {threads}; passes took {times} (medians of {ROUNDS})")


def fewest(seconds: Mapping[int, float]) -> int:
    """The fewest threads that take at most ENOUGH times the shortest of these seconds, by number of threads."""
    return min(threads for threads, time in seconds.items() if time <= ENOUGH * min(seconds.values()))


def _settle(threads: int, folder: RunFolder | None, how: Mapping[str, Any]) -> None:
    torch.set_num_threads(threads)
    if folder is not None:
        folder.write_json(folder.threads, {"threads": threads, **how})
