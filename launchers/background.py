"""Run something in a background thread of the parent, for the duration of a context."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def in_background(work: Callable[[threading.Event], None], *, name: str) -> Iterator[None]:
    """Run ``work`` in a thread meanwhile; it receives an event, and returns when that is set."""
    done = threading.Event()
    thread = threading.Thread(target=work, args=(done,), name=name, daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()
