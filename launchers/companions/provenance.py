"""Records where a run came from, before its ranks start for the first time."""

from contextlib import AbstractContextManager, nullcontext

from manyheads.launchers.companions import Accompanied, Span

SPAN = Span.FIRST


def accompany(run: Accompanied) -> AbstractContextManager[None]:
    """A context without effect; provenance.json is written before. Raises as ``provenance.record``."""
    if run.folder.is_planned():  # the first start, or an earlier one was killed before this line
        from manyheads.runner.provenance.provenance import record

        with run.folder.locked():
            record(run.folder, run.run, composed_from=run.composed_from)
    return nullcontext()
