"""SIGINT and SIGTERM of the parent, from before its first rank starts until its last one has ended."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager

from runner.stop import SIGNALS


@contextmanager
def received_signals() -> Iterator[list[int]]:
    """Signals are noted in a list meanwhile; the handlers of before come back afterwards."""
    received: list[int] = []
    before = {s: signal.signal(s, lambda signum, _: received.append(signum)) for s in SIGNALS}
    try:
        yield received
    finally:
        for signum, handler in before.items():
            signal.signal(signum, handler)


@contextmanager
def blocked_signals() -> Iterator[None]:
    """Signals wait meanwhile; processes started now begin with them blocked, until they are ready to handle them.

    Ctrl-C reaches every process of the terminal's group, also those that are still importing.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
