"""This process: its signal handlers, its background threads, and that it ends with its parent."""

import ctypes
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

SIGNALS = (signal.SIGINT, signal.SIGTERM)
Handler = Callable[[int, FrameType | None], None]


@contextmanager
def handled_by(handler: Handler) -> Iterator[None]:
    """A context in which this handler receives both signals; the previous handlers are restored afterwards."""
    before = {s: signal.signal(s, handler) for s in SIGNALS}
    try:
        yield
    finally:
        for signum, earlier in before.items():
            signal.signal(signum, earlier)


@contextmanager
def in_background(work: Callable[[threading.Event], None], *, name: str) -> Iterator[None]:
    """A context during which ``work`` runs in a thread; it receives an event, and must return when that is set."""
    done = threading.Event()
    thread = threading.Thread(target=work, args=(done,), name=name, daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


_PR_SET_PDEATHSIG = 1


def die_with_parent() -> None:
    """Ask the kernel to kill this process when its parent ends (Linux: prctl(2), PR_SET_PDEATHSIG).

    Call it in the main thread. The parent must have started this process in its main thread, too.
    """
    if sys.platform != "linux":
        return
    parent = os.getppid()
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    top = os.environ.get("MANYHEADS_PARENT")
    if os.getppid() != parent or (top is not None and not os.path.exists(f"/proc/{top}")):
        os._exit(1)  # the parent ended before the call
