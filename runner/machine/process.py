"""This process: the signals that it receives or blocks, its background threads, and that it ends with its parent."""

import ctypes
import faulthandler
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from types import FrameType

from manyheads.runner.errors import Interrupted

SIGNALS = (signal.SIGINT, signal.SIGTERM)
Handler = Callable[[int, FrameType | None], None]


class OwnHandler:
    """A signal handler of this process alone: a child, such as those of multiprocessing.Pool, does not inherit it."""

    def __init__(self, handler: Handler):
        self._handler = handler
        _forget_in_children()

    def __call__(self, signum: int, frame: FrameType | None) -> None:
        self._handler(signum, frame)


@cache
def _forget_in_children() -> None:
    """Have children of this process start with the usual handlers instead of those that are an ``OwnHandler``.

    Signals are blocked until then, since Python forgets those that a handler receives in a child that has just begun.
    """
    before = threading.local()

    def block() -> None:
        before.mask = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)

    def restore() -> None:
        signal.pthread_sigmask(signal.SIG_SETMASK, before.mask)

    def reset() -> None:
        for signum, usual in zip(SIGNALS, (signal.default_int_handler, signal.SIG_DFL), strict=True):
            if isinstance(signal.getsignal(signum), OwnHandler):
                signal.signal(signum, usual)
        restore()

    os.register_at_fork(before=block, after_in_parent=restore, after_in_child=reset)


@contextmanager
def handled_by(handler: Handler) -> Iterator[None]:
    """A context in which this process receives both signals by the handler; the previous ones are restored."""
    before = {s: signal.signal(s, OwnHandler(handler)) for s in SIGNALS}
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
