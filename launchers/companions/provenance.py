"""Records where a run came from before it first starts, and compares its data whenever it is resumed."""

from contextlib import AbstractContextManager, nullcontext

from manyheads.launchers.companions import Accompanied, Span

SPAN = Span.FIRST


def accompany(run: Accompanied) -> AbstractContextManager[None]:
    """A context without effect; provenance.json is written before.

    Raises as ``provenance.record`` and ``changed_data.refuse_changed``.
    """
    if run.folder.is_planned():  # the first start, or an earlier one was killed before this line
        from manyheads.runner.provenance.provenance import record

        if run.run.checkpoint.resume is not None:
            from manyheads.runner.provenance.changed_data import refuse_changed_origin

            refuse_changed_origin(run.run.checkpoint.resume, run.run.data)
        with run.folder.locked():
            record(run.folder, run.run, composed_from=run.composed_from)
    elif run.trains:
        from manyheads.runner.provenance.changed_data import refuse_changed

        refuse_changed(run.folder, run.run.data)
    return nullcontext()
