"""Says to other runs on this machine which devices a run uses, and finds free ones for launcher.devices=free.

A run without that key uses what it would use anyway, and is told with which runs it shares it.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from manyheads.launchers.companions import Accompanied, Span

SPAN = Span.COMMAND


@contextmanager
def accompany(run: Accompanied) -> Iterator[None]:
    """A context in which the run holds its devices. Raises as ``leasing.leased``."""
    if not run.run.launcher.is_here:
        yield
        return
    from manyheads.launchers.companions.room.leasing import leased  # runs on other machines don't need it

    with leased(run):
        yield
