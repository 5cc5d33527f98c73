"""``train --once``: answers with an equal run; one that is running is waited for, an interrupted one is resumed."""

from collections.abc import Sequence
from functools import partial, update_wrapper
from typing import TYPE_CHECKING

from manyheads.launchers.experiment import run_typed, start
from manyheads.launchers.flags.once.ask import answer_or_begin
from manyheads.launchers.flags.once.sweep_job import answer_job
from manyheads.launchers.flags.once.terms import terms_of
from manyheads.runner.config.command_line import CommandLine
from manyheads.runner.config.composing import run_config
from manyheads.runner.config.origin import resolve_origin

if TYPE_CHECKING:
    from manyheads.runner.records.compared_runs import ComparedRuns
    from manyheads.runner.records.run_result import Result


def line_of(arguments: Sequence[str]) -> CommandLine:
    """The command line without these flags. Raises ConfigurationError."""
    return terms_of(arguments).line


def take(arguments: Sequence[str], *, wants_answer: bool = False) -> "Result | ComparedRuns | None":
    """Answer with an equal run, or run what was typed; a sweep, job by job.

    Raises as ``run_typed``, and WaitExpired.
    """
    terms = terms_of(arguments)
    if terms.line.flags.multirun:
        task = update_wrapper(partial(answer_job, terms=terms.absolute()), start)
        return run_typed(terms.line.arguments, wants_answer=wants_answer, task=task)
    line, origin = resolve_origin(terms.line)
    run = run_config([word for word in line.overrides if not word.startswith("hydra")], line, origin)
    begin = partial(run_typed, terms.line.arguments, wants_answer=True)
    return answer_or_begin(run, terms, begin, packages=origin.packages)
