"""Waiting for what another process does."""

import time
from collections.abc import Callable


def wait_for(condition: Callable[[], bool], *, seconds: float) -> None:
    """Raises AssertionError where the condition is not true within so many seconds."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, f"not within {seconds:g} s"
        time.sleep(0.05)
