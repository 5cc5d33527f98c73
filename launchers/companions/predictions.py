"""Notes how long an update took in a run whose time was predicted."""

from collections.abc import Iterator
from contextlib import contextmanager

from manyheads.launchers.companions import Accompanied, Span
from manyheads.runner.provenance import predicted

SPAN = Span.RUN


@contextmanager
def accompany(run: Accompanied) -> Iterator[None]:
    """A context after which the time of a run that was predicted, and has completed, is in the ledger."""
    yield
    if run.trains:
        predicted.note(run.folder)
