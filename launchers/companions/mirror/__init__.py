"""Copies a run that trains to object storage, if its config names an address: checkpoint.mirror."""

from contextlib import AbstractContextManager, nullcontext

from manyheads.launchers.companions import Accompanied, Span

SPAN = Span.STORED


def accompany(run: Accompanied) -> AbstractContextManager[None]:
    """A context in which the run is copied, and after which the rest is stored. Raises as ``follower.mirrored``."""
    if not run.trains or run.run.trainer.evaluate_only or run.run.checkpoint.mirror is None:
        return nullcontext()
    from manyheads.launchers.companions.mirror.follower import mirrored  # few runs need it

    return mirrored(run, run.run.checkpoint.mirror)
