"""A breakdown of an epoch's time, measured in the same way for every backend.

Waiting for data, logging, evaluation and checkpoints are timed each time they happen. The rest of the training time is
divided in proportion to a few updates that are measured in detail: one near the start of each epoch, and one every
SAMPLE_SECONDS, or every tenth if they take longer. The first WARMUP_UPDATES of a process are measured only if an epoch
has no others: on a GPU, the first step of the optimizer takes longer than all others of an epoch together.

Communication means exposed communication, not what overlaps with the backward pass: from this rank's last gradient to
the end of the exchange, including the wait for slower ranks, plus what a wrapper does around the user's own forward
pass (DistributedDataParallel shares buffers, DataParallel scatters and gathers). The hooks that measure this cost about
20 µs, and 2 µs for each parameter, only in sampled updates.
"""

import math
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch import nn
from torch.utils.hooks import RemovableHandle

from manyheads.runner.data.rank.batches import Batch
from manyheads.runner.loop.clock import WARMUP_UPDATES
from manyheads.runner.loop.compile import is_compiled
from manyheads.runner.loop.guards.guard import Guard
from manyheads.runner.loop.meter import SAMPLED, Sums
from manyheads.runner.loop.observers.observer import Observer
from manyheads.runner.loop.progress import Progress
from manyheads.runner.loop.update import Update, UpdateResult

SAMPLE_SECONDS = 0.25
OTHERS = 9  # for each that is measured, if updates are long
SETTLE_SECONDS = 0.001  # from an epoch's beginning, when caches are cold


class Marks(Guard):
    """Calls ``mark`` when an update has exchanged its gradients, and when it has stepped."""

    def __init__(self, mark: Callable[[str], None]):
        self._mark = mark

    def exchanged(self, update: Update, step: int, batches: list[Batch]) -> None:
        self._mark("exchanged")

    def stepped(self, step: int) -> None:
        self._mark("stepped")


class Breakdown(Observer):
    """Measures updates of one rank in detail. ``model``: as the strategy wrapped it; ``inner``: the user's model in it.

    ``ranks``: how many train together; a single one exchanges nothing after its last gradient; ``guards``: of the
    updates, the last of which looks at those that are measured.
    """

    def __init__(self, model: nn.Module, inner: nn.Module, device: torch.device, *, ranks: int, guards: list[Guard]):
        self._guards, self._guard = guards, Marks(self.mark)
        self._parameters = [p for p in model.parameters() if p.requires_grad] if ranks > 1 else []
        # A compiled model would be recompiled for its hooks.
        is_plain = not (is_compiled(model) or is_compiled(inner))
        self._modules = (model, inner) if model is not inner and is_plain else None
        self._device = device
        self._begun, self._next = 0.0, math.inf  # when the last measurement began, and the next is due
        self._seen = self._cold = 0  # updates so far, and those that are not measured
        self._marks: dict[str, Any] | None = None  # of the update that is being measured
        self._passes: list[dict[str, Any]] = []  # its forward passes
        self._handles: list[RemovableHandle] = []
        self._finished: list[tuple[dict[str, Any], list[dict[str, Any]]]] = []

    @classmethod
    def of(cls, update: Update) -> "Breakdown":
        """The breakdown of this update."""
        model, parallel = update.model, update.parallel
        ranks, guards = parallel.world_size, update.guards
        return cls(model, parallel.unwrap(model), parallel.device, ranks=ranks, guards=guards)

    def training(self, updates: int) -> AbstractContextManager[Any]:
        self.enter_epoch(updates)
        return super().training(updates)

    def before_update(self, now: float) -> None:
        if self.is_due(now):
            self.begin()

    def updated(self, progress: Progress, batches: list[Batch], result: UpdateResult) -> None:
        if self._marks is not None:
            self.end()

    def exchanging(self, windows: Sequence[Sums]) -> None:
        if windows:
            windows[-1].take(self.take())

    def enter_epoch(self, updates: int) -> None:
        """Called when an epoch starts or continues, with this number of ``updates`` to come: one will be measured."""
        self._next = min(self._next, time.perf_counter() + SETTLE_SECONDS)
        self._cold = min(WARMUP_UPDATES, self._seen + updates - 1)

    def is_due(self, now: float) -> bool:
        """Whether to measure the next update; called once before each. ``now``: by time.perf_counter."""
        self._seen += 1
        return now >= self._next and self._seen > self._cold

    def begin(self) -> None:
        """Called when the measured update starts."""
        self._begun = time.perf_counter()
        self._marks, self._passes = {}, []
        self._guards.append(self._guard)
        self._hook()
        self.mark("started")

    def mark(self, name: str) -> None:
        """Called when the update reaches ``name``: computed (its last gradient), exchanged, stepped."""
        if self._marks is not None:
            self._marks[name] = self._now()

    def end(self) -> None:
        """Called when the update is done."""
        self.mark("ended")
        ended = time.perf_counter()
        self._next = max(self._begun + SAMPLE_SECONDS, ended + OTHERS * (ended - self._begun))
        for handle in self._handles:
            handle.remove()
        self._guards.remove(self._guard)
        assert self._marks is not None
        if "stepped" in self._marks:  # else the update was left out
            self._finished.append((self._marks, self._passes))
        self._marks, self._handles = None, []

    def take(self) -> dict[str, float]:
        """Seconds of the updates measured since the last call, as fields of Sums. Waits for the device."""
        times = dict.fromkeys(SAMPLED, 0.0)
        for marks, passes in self._finished:
            computed = marks.get("computed", marks["exchanged"])  # absent for one rank, or without any gradient
            around = sum(
                _between(events["called"], events["entered"]) + _between(events["left"], events["returned"])
                for events in passes
                if len(events) == 4
            )
            times["sampled_compute"] += _between(marks["started"], computed) - around
            times["sampled_communication"] += _between(computed, marks["exchanged"]) + around
            times["sampled_optimizer"] += _between(marks["exchanged"], marks["stepped"])
            times["sampled_logging"] += _between(marks["stepped"], marks["ended"])
        self._finished = []
        return times

    def _hook(self) -> None:
        self._handles = [
            p.register_post_accumulate_grad_hook(lambda _: self.mark("computed")) for p in self._parameters
        ]
        if self._modules:
            wrapper, inner = self._modules
            self._handles += [
                wrapper.register_forward_pre_hook(lambda *_: self._passes.append({"called": self._now()})),
                inner.register_forward_pre_hook(lambda *_: self._inside("entered", first=True)),
                inner.register_forward_hook(lambda *_: self._inside("left", first=False)),
                wrapper.register_forward_hook(lambda *_: self._passes[-1].update(returned=self._now())),
            ]

    def _inside(self, name: str, *, first: bool) -> None:
        """Note the time. DataParallel's replicas call this from several threads; only those on this device count."""
        if self._device.type == "cuda" and torch.cuda.current_device() != self._device.index:
            return
        if not first or name not in self._passes[-1]:
            self._passes[-1][name] = self._now()

    def _now(self) -> Any:
        if self._device.type != "cuda":
            return time.perf_counter()
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event


def _between(start: Any, end: Any) -> float:
    if isinstance(start, float):
        return end - start
    end.synchronize()
    return start.elapsed_time(end) / 1000
