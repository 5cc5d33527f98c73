"""The signals by which a run is asked to stop, and who handles them meanwhile."""

import signal
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
