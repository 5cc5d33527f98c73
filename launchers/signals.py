"""SIGINT and SIGTERM of the parent, from before its first rank starts until its last one has ended."""

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

from manyheads.runner.run.errors import Interrupted
from manyheads.runner.run.signals import SIGNALS

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
def received_signals() -> Iterator[list[int]]:
    """A context in which signals are collected in a list."""
    received: list[int] = []
    with handled_by(lambda signum, _: received.append(signum)):
        yield received


def interrupt(signum: int, _: FrameType | None) -> None:
    """The handler that interrupts whatever is being done."""
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
