"""A thread of the parent that goes on beside something else, and ends with it."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def in_background(work: Callable[[threading.Event], None], *, name: str) -> Iterator[None]:
    """``work`` runs meanwhile; it is given an event, and returns when that is set."""
    done = threading.Event()
    thread = threading.Thread(target=work, args=(done,), name=name, daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()
