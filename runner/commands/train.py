"""``manyheads train``, ``python run.py``: run one experiment, or with -m a sweep."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from manyheads.launchers.flags import chosen
from manyheads.launchers.warm_ahead import ahead
from manyheads.runner.run.data_files import without_collector

if TYPE_CHECKING:  # printing a config or the help does not need them
    from manyheads.runner.records.compared_runs import ComparedRuns
    from manyheads.runner.records.run_result import Result

HELP = "run one experiment, or with -m a sweep; takes group=option, key=value and Hydra's flags"


def take(arguments: Sequence[str], *, wants_answer: bool = False) -> "Result | ComparedRuns | None":
    """Run what was typed, as Hydra composes it; the process that ranks are forked from imports meanwhile.

    Returns None if nothing was run, and without ``wants_answer``, since comparing many jobs takes seconds. Raises
    ConfigurationError, RunFailed, Ended and Interrupted, with the answer so far.
    """
    if (flag := chosen(arguments)) is not None:
        return flag.take(arguments, wants_answer=wants_answer)
    if (begun := ahead(arguments)) is not None:
        begun.begin()
    with without_collector():  # until a job starts
        from manyheads.launchers.experiment import run_typed  # Hydra takes longer to import than the rest

        return run_typed(arguments, wants_answer=wants_answer, begun=begun)
