"""``train --once``: answers with an equal run; one that is running is waited for, an interrupted one is resumed."""

import gc
from collections.abc import Sequence
from functools import partial, update_wrapper
from typing import TYPE_CHECKING

from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig

from manyheads.launchers.experiment import run_typed, start
from manyheads.launchers.flags.once.ask import answer_or_begin
from manyheads.launchers.flags.once.terms import Terms, terms_of
from manyheads.launchers.launcher_option import Ahead
from manyheads.launchers.sweep.job_progress import EarlierRun
from manyheads.runner.config.command_line import CommandLine
from manyheads.runner.config.composing import run_config
from manyheads.runner.config.origin import Origin, resolve_origin
from manyheads.runner.errors import ConfigurationError
from manyheads.runner.option.run_config import RunConfig
from manyheads.runner.records.run_result import Result
from manyheads.runner.run import seal
from manyheads.runner.run.files import matching, remove, remove_if_empty
from manyheads.runner.run.ledger import Ledger
from manyheads.runner.run.run_folder import RunFolder

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


def answer_job(config: DictConfig, *, terms: Terms, origin: Origin, ahead: Ahead | None = None) -> float | None:
    """Run one job as ``start`` does, and return its objective; raises EarlierRun if an equal run answers."""
    gc.enable()  # ``take`` of the command has disabled it
    hydras = HydraConfig.get()
    folder = RunFolder(hydras.runtime.output_dir)
    if not folder.is_planned():
        launcher = hydras.runtime.choices.get("hydra/launcher")
        raise ConfigurationError.at("hydra/launcher", launcher, ": --once needs hydra/launcher=manyheads, the default.")
    begin = partial(start, config, origin=origin, ahead=ahead)
    run = RunConfig.of(origin.admitted(folder))
    result = answer_or_begin(run, terms, begin, packages=origin.packages, apart=True)
    if not isinstance(result, Result):
        return result
    _remove(folder)
    raise EarlierRun(Ledger(str(hydras.sweep.dir)).name_of(RunFolder(result.folder).path), result.objective)


def _remove(folder: RunFolder) -> None:
    """Remove what was written for a job that is not run."""
    folder.remove_plan()
    for path in (*matching(folder.path, "*.log"), folder.path / seal.NAME):
        remove(path)
    remove_if_empty(folder.path)
