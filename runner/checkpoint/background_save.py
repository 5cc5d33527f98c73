"""Work in the background of training: at most one piece at a time, whose error is not lost."""

import threading
import time
from collections.abc import Callable
from typing import NamedTuple


class FinishedSave(NamedTuple):
    """A save that is over. ``waited``: seconds that training stood still for it at last."""

    step: int
    waited: float


class GivenUp(Exception):
    """Nobody waits for this work any more."""


class BackgroundSave:
    """Runs ``work`` in a separate thread; it receives a function that says whether the work is still wanted."""

    def __init__(self, work: Callable[[Callable[[], bool]], None], *, step: int):
        self.step = step
        self._error: BaseException | None = None
        self._is_given_up = threading.Event()
        self._work = work
        self._thread = threading.Thread(target=self._run, name=f"checkpoint of step {step}", daemon=True)
        self._thread.start()

    def wait(self) -> FinishedSave:
        """Wait for the end. Raises what the work raised."""
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
