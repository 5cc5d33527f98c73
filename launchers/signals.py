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
    """Both signals are handled so meanwhile; the handlers of before come back afterwards."""
    before = {s: signal.signal(s, handler) for s in SIGNALS}
    try:
        yield
    finally:
        for signum, earlier in before.items():
            signal.signal(signum, earlier)


@contextmanager
def received_signals() -> Iterator[list[int]]:
    """Signals are noted in a list meanwhile."""
    received: list[int] = []
    with handled_by(lambda signum, _: received.append(signum)):
        yield received


def interrupt(signum: int, _: FrameType | None) -> None:
    """The handler that ends whatever is being done."""
    raise Interrupted(signum)


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
