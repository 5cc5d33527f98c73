"""The parts of an update, each of which can be repeated alone."""

import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import islice
from typing import Any

import torch
from torch import Tensor
from torch.distributed.tensor import DTensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map_only

from manyheads.runner.answers.measure.limits import BATCH, EXCHANGE, LOADER, OPTIMIZER, PASSES, UPDATE
from manyheads.runner.data.rank.batches import Batch
from manyheads.runner.loop.clock import Stopwatch
from manyheads.runner.loop.guards.guard import observed_gradients
from manyheads.runner.loop.observers.held_memory import gradient_bytes
from manyheads.runner.loop.observers.observer import Observer
from manyheads.runner.loop.progress import Progress
from manyheads.runner.loop.trainer import Trainer
from manyheads.runner.loop.update import UpdateResult
from manyheads.runner.option.run_config import RunConfig
from manyheads.runner.parallel.rank.parallel import Parallel
from manyheads.runner.parallel.rank.structure import call

NAMESPACES = ("c10d", "_c10d_functional")
COLLECTIVES = ("allreduce", "allgather", "reducescatter", "broadcast", "alltoall")  # without underscores
BETWEEN_TWO = ("send", "recv")  # these are not repeated
LONGEST_PAUSE = 2.0  # seconds
Part = Callable[[int], float]  # repeats a part of an update N times; returns the seconds of the slowest rank


class TimedUpdates(Observer):
    """Times the updates after update ``first``, up to update ``last``. ``began``, ``ended``: called just outside."""

    def __init__(
        self,
        parallel: Parallel,
        *,
        first: int,
        last: int,
        began: Callable[[], None] = lambda: None,
        ended: Callable[[], None] = lambda: None,
    ):
        self._first, self._last, self._began, self._ended = first, last, began, ended
        self.clock = Stopwatch(parallel)

    def updated(self, progress: Progress, batches: list[Batch], result: UpdateResult) -> None:
        if progress.step == self._first:
            self._began()
            self.clock.start()
        elif progress.step == self._last:
            self.clock.stop()
            self._ended()


def fitted(trainer: Trainer, timed: TimedUpdates) -> float:
    """Seconds of the timed updates, when the trainer runs to its end without writing checkpoints."""
    with trainer.observed(timed):
        trainer.fit(lambda *, best: None, due_after_step=lambda step: False)
    return timed.clock.seconds


class UpdateParts:
    """A rank's updates and their parts, each of which can be repeated alone."""

    def __init__(self, trainer: Trainer, run: RunConfig):
        self.trainer, self.update, self.parallel, self.run = trainer, trainer.update, trainer.update.parallel, run
        self.update.enter_epoch(0)
        self.kept: list[Batch] = next(trainer.updates(trainer.train.epoch(0)))
        self._ahead = 2 * run.data.num_workers  # batches that loader processes may have ready

    def known(self) -> dict[str, Part]:
        """The parts that this strategy has, by name."""
        parts = {UPDATE: self.updates, LOADER: self.load, BATCH: self._repeated(self.update_with_kept)}
        if not (self.run.parallel.mixes_communication or self.run.parallel.replicates):
            parts[PASSES] = self._repeated(self.passes)
        if not self.update.parallel.backward_steps:
            parts[OPTIMIZER] = self.steps
        if (exchange := self._exchange()) is not None:
            parts[EXCHANGE] = self._repeated(exchange)
        return parts

    # -- as in training ------------------------------------------------------------------------------

    def updates(self, count: int) -> float:
        """Seconds of ``count`` updates by the training loop itself, including its logging."""
        trainer = self.trainer
        first = trainer.progress.step + 1 + self._ahead
        trainer.settings = replace(trainer.settings, last_step=first + count)
        return fitted(trainer, TimedUpdates(self.parallel, first=first, last=first + count))

    # -- alone ---------------------------------------------------------------------------------------

    def load(self, count: int) -> float:
        """Seconds to load the batches of ``count`` updates, until they are prepared on the device."""
        batches, clock = self._endless(), Stopwatch(self.parallel)
        for _ in islice(batches, 1 + self._ahead):
            self.trainer.heartbeat.beat()
        clock.start()
        for _ in islice(batches, count):
            self.trainer.heartbeat.beat()
        seconds = clock.stop()
        time.sleep(min(LONGEST_PAUSE, self._ahead * seconds / count))  # until loader processes have filled their queues
        return seconds

    def update_with_kept(self) -> None:
        """Make an update whose batch is in memory."""
        self.update(self.kept, number=self.trainer.progress.step, wants_norm=False)

    def passes(self) -> None:
        """Run the forward and backward passes of an update, without any exchange.

        Gradients are returned and not accumulated, so no hook that would exchange them is called.
        """
        model, steps = self.parallel.unwrap(self.update.model), self.update.micro_steps(self.kept, used=False)
        trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
        for batch in self.kept:
            with self.update.precision.autocast():
                objective, _ = steps.objective(call(model, batch.inputs), batch)
            torch.autograd.grad(objective, trained, allow_unused=True)

    def steps(self, count: int) -> float:
        """Seconds of ``count`` steps of the optimizer, with the same gradients and a learning rate of 0."""
        update, clock = self.update, Stopwatch(self.parallel)
        update.compute_gradients(self.kept)
        update.precision.unscale(update.optimizer)
        for group in update.optimizer.param_groups:
            group["lr"] = 0.0  # until the next update sets it
        for number in range(count + 1):
            if number == 1:
                clock.start()
            with self.parallel.stepping(update.optimizer):
                update.precision.step(update.optimizer)
            self.trainer.heartbeat.beat()
        seconds = clock.stop()
        update.precision.zero_grad(update.optimizer)
        return seconds

    def _exchange(self) -> Callable[[], Any] | None:
        """A function that repeats the exchanges of an update; None if there are none, or they cannot be repeated."""
        if self.parallel.world_size == 1:
            return None
        sizes: list[int] = []
        looking = observed_gradients(self.update.guards, lambda: sizes.append(gradient_bytes(self.update)))
        with RecordedCollectives() as exchanges, looking:
            self.update_with_kept()
        if not exchanges.is_complete:
            return None
        return exchanges.again if exchanges else summed(self.parallel, sizes[0])

    def _repeated(self, part: Callable[[], Any]) -> Part:
        def repeat(count: int) -> float:
            clock = Stopwatch(self.parallel)
            part()
            clock.start()
            for _ in range(count):
                part()
                self.trainer.heartbeat.beat()
            return clock.stop()

        return repeat

    def _endless(self) -> Iterator[list[Batch]]:
        epoch = self.trainer.progress.epoch
        while True:
            yield from self.trainer.updates(self.trainer.train.epoch(epoch))


class RecordedCollectives(TorchDispatchMode):
    """Records the collectives that torch.distributed runs in the context, so that they can be repeated alone.

    ``is_complete``: false if there were also messages between two ranks, which ``again`` does not repeat.
    """

    def __init__(self) -> None:
        super().__init__()
        self._calls: list[tuple[Callable[..., Any], Any]] = []
        self.is_complete = True

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if DTensor in types:  # it is dispatched again, with local tensors
            return NotImplemented
        if func.namespace in NAMESPACES:
            name = str(func).split(".")[1].replace("_", "")
            if name.startswith(COLLECTIVES):
                self._calls.append((func, tree_map_only(Tensor, torch.zeros_like, (args, kwargs or {}))))
            self.is_complete &= not name.startswith(BETWEEN_TWO)
        return func(*args, **(kwargs or {}))

    def again(self) -> None:
        """Repeat them in their order, on tensors of zeros: start all, then wait for each."""
        for wait in [_waiting(func(*args, **keywords)) for func, (args, keywords) in self._calls]:
            wait()

    def __bool__(self) -> bool:
        return bool(self._calls)


def _waiting(result: Any) -> Callable[[], Any]:
    """A function that waits for the collective that returned ``result``."""
    if isinstance(result, Tensor):  # a functional collective
        return lambda: torch.ops._c10d_functional.wait_tensor(result)
    work = result[-1] if isinstance(result, (tuple, list)) else result
    return lambda: torch.distributed.Work.unbox(work).wait()


def summed(parallel: Parallel, size: int) -> Callable[[], Any]:
    """A function that sums ``size`` bytes over all ranks, for strategies that do not use torch.distributed."""
    tensor = torch.zeros(max(1, size // 4), device=parallel.device)
    return lambda: parallel.reduce(tensor)
