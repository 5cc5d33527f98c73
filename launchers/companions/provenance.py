"""Records where a run came from before it first starts, and compares its data whenever it is resumed."""

from contextlib import AbstractContextManager, nullcontext

from manyheads.launchers.companions import Accompanied, Span
from manyheads.runner.run.run_folder import RunFolder

SPAN = Span.FIRST


def accompany(run: Accompanied) -> AbstractContextManager[None]:
    """A context without effect; provenance.json is written before.

    Raises as ``provenance.record`` and ``changed_data.refuse_changed``.
    """
    from manyheads.runner.provenance.changed_data import refuse_changed  # not needed beside ranks that have started

    if run.folder.is_planned():  # the first start, or an earlier one was killed before this line
        from manyheads.runner.provenance.provenance import record

        checkpoint = run.run.checkpoint.resume
        if checkpoint is not None and (origin := RunFolder.of_checkpoint(checkpoint)).config.exists():
            refuse_changed(origin, run.run.data)
        with run.folder.locked():
            record(run.folder, run.run, composed_from=run.composed_from)
    elif run.trains:
        refuse_changed(run.folder, run.run.data)
    return nullcontext()
