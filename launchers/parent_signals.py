"""SIGINT and SIGTERM of the parent, from before its first rank starts until its last one has ended."""

import faulthandler
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from manyheads.runner.errors import Interrupted
from manyheads.runner.machine.process import SIGNALS, handled_by

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
