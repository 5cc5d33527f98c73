"""Python's garbage collection, at the same time on all ranks: while one rank pauses, all others wait for it."""

import gc
import math
import time
from contextlib import AbstractContextManager
from typing import Any

from torch import Tensor

from manyheads.runner.loop.observers.observer import Observer
from manyheads.runner.loop.progress import Progress

YOUNG_SECONDS, ALL_SECONDS = 1.0, 60.0  # between two collections of new objects, and of all


class Garbage(Observer):
    """A context, around the updates of an epoch, in which only ``tick`` collects cycles.

    Objects that survive its first full collection, such as torch's modules, are frozen: scanning them again would take
    0.2 s each time, during which a GPU is idle.
    """

    _young = _all = math.inf
    _is_frozen = False

    def __enter__(self) -> "Garbage":
        self._was_enabled = gc.isenabled()
        gc.disable()
        now = time.monotonic()
        self._young, self._all = now + YOUNG_SECONDS, now + ALL_SECONDS
        return self

    def __exit__(self, *_: object) -> None:
        if self._is_frozen:
            gc.unfreeze()
            self._is_frozen = False
        if self._was_enabled:
            gc.enable()

    def training(self, updates: int) -> AbstractContextManager[Any]:
        return self

    def exchanged(self, progress: Progress, by_rank: Tensor) -> None:
        self.tick()

    def tick(self) -> None:
        """Collect cycles if it is time. Called when the ranks have just exchanged something."""
        now = time.monotonic()
        if now >= self._all:
            gc.collect()
            # Once, since what is alive now may become garbage; not where most is frozen, as in a rank that was forked.
            if not self._is_frozen and len(gc.get_objects()) > gc.get_freeze_count():
                gc.freeze()
                self._is_frozen = True
            self._young, self._all = now + YOUNG_SECONDS, now + ALL_SECONDS
        elif now >= self._young:
            gc.collect(1)
            self._young = now + YOUNG_SECONDS
