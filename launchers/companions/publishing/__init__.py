"""Publishes a run to each tracker among its loggers."""

from contextlib import AbstractContextManager, nullcontext

from manyheads.launchers.companions import Accompanied, Span

SPAN = Span.RUN


def accompany(run: Accompanied) -> AbstractContextManager[None]:
    """A context in which the run is published, and after which its outcome is; neither delays nor ends the run."""
    trackers = {name: logger for name, logger in run.run.logger.items() if logger.publishes}
    if not run.trains or not trackers:
        return nullcontext()
    from manyheads.launchers.companions.publishing.publishers import publishers  # few runs need it

    return publishers(run, trackers)
