"""Saving a checkpoint in a thread while training continues; ``wait`` raises the error of a save that failed."""

import threading
import time
from collections.abc import Callable
from typing import NamedTuple


class FinishedSave(NamedTuple):
    """A save that is complete. ``waited``: seconds for which training stopped until it was."""

    step: int
    waited: float


class GivenUp(Exception):
    """Raised in a save that is no longer wanted."""


class BackgroundSave:
    """Runs ``work`` in a separate thread; it receives a function that returns whether it is still wanted."""

    def __init__(self, work: Callable[[Callable[[], bool]], None], *, step: int):
        self.step = step
        self._error: BaseException | None = None
        self._is_given_up = threading.Event()
        self._work = work
        self._thread = threading.Thread(target=self._run, name=f"checkpoint of step {step}", daemon=True)
        self._thread.start()

    def wait(self) -> FinishedSave:
        """Wait until the work ends. Raises what it raised."""
        started = time.perf_counter()
        self._thread.join()
        if self._error is not None:
            raise self._error
        return FinishedSave(self.step, time.perf_counter() - started)

    def give_up(self) -> None:
        """Tell the work that it is no longer wanted, and wait until it stops."""
        self._is_given_up.set()
        self._thread.join()

    def _run(self) -> None:
        try:
            self._work(lambda: not self._is_given_up.is_set())
        except BaseException as error:
            self._error = error
