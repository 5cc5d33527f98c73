"""``train --queue``: freezes a run and queues it; a worker, ``manyheads work``, runs it when there is room."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from manyheads.runner.records.run_result import Result


def take(arguments: Sequence[str], *, wants_answer: bool = False) -> "Result | None":
    """Queue the run that was typed, and return it. Raises as ``run_typed``."""
    from manyheads.launchers.flags.queue.enqueue import enqueued  # slow, and workers need not compose configs

    return enqueued(arguments)
