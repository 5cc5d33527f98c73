"""``train --once``: answers with an equal run; one that is running is waited for, an interrupted one is resumed."""

from collections.abc import Sequence

from manyheads.launchers.experiment import run_typed
from manyheads.launchers.flags.once.equal_runs import EqualRuns, state_of_start
from manyheads.launchers.flags.once.terms import terms_of
from manyheads.launchers.flags.once.turns import Waiting, turn
from manyheads.launchers.resume_run import resume_run
from manyheads.runner.config.composing import run_config
from manyheads.runner.config.origin import resolve_origin
from manyheads.runner.errors import Failure, RunFailed, printable
from manyheads.runner.records.run_result import Result
from manyheads.runner.run.run_folder import RunFolder
from manyheads.runner.wording import tell


def take(arguments: Sequence[str]) -> Result | None:
    """Answer with an equal run, or run what was typed. Raises as ``run_typed``, and WaitExpired."""
    terms = terms_of(arguments)
    line, origin = resolve_origin(terms.line)
    run = run_config([word for word in line.overrides if not word.startswith("hydra")], line, origin)
    start = state_of_start(run)
    if (known := EqualRuns.of(terms.roots, start).answer(terms.accepts_failed)) is not None:
        return _answered(known)
    waiting = Waiting(terms.seconds)
    with turn(terms.roots[0], start.key, waiting):
        while (runs := EqualRuns.of(terms.roots, start)).active:
            waiting.pause(f"{runs.active[0]} is being run")
        if waiting.has_waited:  # files may have changed meanwhile
            runs = EqualRuns.of(terms.roots, state_of_start(run))
        if (known := runs.answer(terms.accepts_failed)) is not None:
            return _answered(known)
        if runs.interrupted:
            tell(f"{runs.interrupted[0]} is the same run, and was interrupted: resuming it")
            return resume_run(runs.interrupted[0], origin.packages)
        result: Result | None = run_typed(terms.line.arguments, wants_answer=True)  # type: ignore[assignment]
        return result


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
