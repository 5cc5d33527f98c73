"""This process: the signals that it receives or blocks, its background threads, and that it ends with its parent."""

import ctypes
import faulthandler
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

from manyheads.runner.errors import Interrupted

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


LAST_SECONDS = 20.0  # that this process may take to end after a second signal


@contextmanager
def received_signals() -> Iterator[list[int]]:
    """A context in which signals are collected in a list; after the second, this process has LAST_SECONDS to end."""
    received: list[int] = []

    def receive(signum: int, _: FrameType | None) -> None:
        received.append(signum)
        if len(received) == 2:
            end_within(LAST_SECONDS)

    try:
        with handled_by(receive):
            yield received
    finally:
        faulthandler.cancel_dump_traceback_later()


def end_within(seconds: float) -> None:
    """End this process after ``seconds`` with exit code 1 and a traceback; processes that it started die too.

    A thread in C does it, which no Python code can delay. Leaving ``received_signals`` cancels it.
    """
    faulthandler.dump_traceback_later(seconds, exit=True)


def interrupt(signum: int, _: FrameType | None) -> None:
    """A signal handler that raises Interrupted."""
    raise Interrupted(signum)


@contextmanager
def blocked_signals() -> Iterator[None]:
    """A context in which signals are blocked; processes started in it unblock them when they are ready.

    Ctrl-C reaches every process of the terminal's process group, including those that are still importing.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
