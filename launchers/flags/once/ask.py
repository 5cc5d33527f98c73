"""Answers for one run: with a run that started equally, or by beginning it."""

from collections.abc import Callable, Sequence
from typing import TypeVar

from manyheads.launchers.flags.once.equal_runs import EqualRuns, state_of_start
from manyheads.launchers.flags.once.terms import Terms
from manyheads.launchers.flags.once.turns import Waiting, turn
from manyheads.launchers.resume_run import resume_run
from manyheads.runner.errors import Failure, RunFailed, printable
from manyheads.runner.option.run_config import RunConfig
from manyheads.runner.records.run_result import Result
from manyheads.runner.run.run_folder import RunFolder
from manyheads.runner.wording import tell

Begun = TypeVar("Begun")


def answer_or_begin(
    run: RunConfig, terms: Terms, begin: Callable[[], Begun], *, packages: Sequence[str], apart: bool = False
) -> Result | Begun | None:
    """The result of an equal run, or what ``begin`` returns. Raises RunFailed, WaitExpired, and as ``resume_run``.

    ``packages``, ``apart``: as for ``resume_run``.
    """
    start = state_of_start(run)
    if (known := EqualRuns.of(terms.roots, start).answer(terms.accepts_failed)) is not None:
        return _answered(known)
    waiting = Waiting(terms.seconds)
    with turn(terms.roots[0], start.key, waiting):
        while (reason := (runs := EqualRuns.of(terms.roots, start)).reason_to_wait) is not None:
            waiting.pause(reason)
        if waiting.has_waited:  # files may have changed meanwhile
            runs = EqualRuns.of(terms.roots, state_of_start(run))
        if (known := runs.answer(terms.accepts_failed)) is not None:
            return _answered(known)
        if runs.interrupted:
            tell(f"{runs.interrupted[0]} is the same run, and was interrupted: resuming it")
            return resume_run(runs.interrupted[0], packages, apart=apart)
        return begin()


def _answered(folder: RunFolder) -> Result:
    """The result of a run that has ended, which this command would repeat. Raises RunFailed if it has failed."""
    result = Result.of(folder.path)
    whose = "" if folder.is_own() else ", which was not recorded by you"
    tell(f"{printable(folder)} is the same run{whose}: {result.status}. Nothing was started.")
    if result.status != "completed":
        failed = RunFailed(result.error or Failure(message=f"{folder} has failed"))
        failed.answer = result
        raise failed
    return result
