"""Runs one experiment, or with -m a sweep: compose, check, freeze, launch."""

import gc
import io
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, redirect_stdout
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from hydra.core.hydra_config import HydraConfig
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf

from manyheads.runner.config import hydra_version
from manyheads.runner.config.command_line import CommandLine
from manyheads.runner.config.fresh_folder import is_met_elsewhere
from manyheads.runner.config.hydra_errors import check_experiment, explained
from manyheads.runner.config.lookup import CONF, searched
from manyheads.runner.config.origin import Origin, resolve_origin
from manyheads.runner.errors import ConfigurationError, Ended, ExitCode, Interrupted, RunFailed, lost_output, report
from manyheads.runner.machine import invocation
from manyheads.runner.run import seal
from manyheads.runner.run.run_folder import RunFolder

if TYPE_CHECKING:  # printing a config or the help does not need them
    from manyheads.launchers.launcher_option import Ahead
    from manyheads.runner.records.compared_runs import ComparedRuns
    from manyheads.runner.records.run_result import Result


def run_typed(
    arguments: Sequence[str], *, wants_answer: bool, begun: "Ahead | None" = None, task: Callable | None = None
) -> "Result | ComparedRuns | None":
    """Let Hydra compose what was typed, and call ``start`` for each job. Returns and raises as ``take``.

    ``begun``: what was started for the ranks already; ``task``: takes the place of ``start``.
    """
    line, origin = resolve_origin(CommandLine((*arguments,), Path.cwd() if invocation.by_script() else CONF.parent))
    sys.argv[1:] = line.absolute().arguments
    os.environ["HYDRA_FULL_ERROR"] = "1"  # Hydra raises its errors instead of printing them
    hydra_version.register_resolver("command", invocation.command, replace=True)  # for the help
    try:
        with explained(line), _logged_at_once() if line.flags.info else nullcontext():
            hydra_version.main(line, origin.bind(task or start, ahead=begun))()
        origin.end()
    except (ConfigurationError, RunFailed, Ended, Interrupted) as reason:
        reason.answer = origin.answer() if wants_answer else None
        raise
    return origin.answer() if wants_answer else None


@contextmanager
def _logged_at_once() -> Iterator[None]:
    """A context that prints at its end what was logged on stdout: logging reports a lost stdout once for each line."""
    with redirect_stdout(io.StringIO()) as text:
        yield
    print(text.getvalue(), end="")


def start(config: DictConfig, *, origin: Origin, ahead: "Ahead | None" = None) -> float | None:
    """Run one experiment, or one job of a sweep; return the objective, for sweepers that search.

    ``ahead``: what was started for the ranks before the config was composed.
    """
    gc.enable()  # ``take`` has disabled it
    from manyheads.launchers.companions import refuse_start  # not needed to print a config or the help
    from manyheads.launchers.launch import Start, launch
    from manyheads.runner.config.freeze import checked
    from manyheads.runner.option.run_config import RunConfig
    from manyheads.runner.records.run_result import result_if_any

    with job_folder() as folder:
        hydras = HydraConfig.get()
        origin.answers.append(partial(result_if_any, folder.path))  # a job's comes after that of its sweep
        folders = searched(hydras.runtime.config_sources)  # type: ignore[arg-type]  # a config, which is a mapping
        if is_met_elsewhere(config.get("launcher", {})):
            run = checked(config, admit=origin.admit, folders=folders)
            run.launcher.join(run.digests())
            return None
        if _in_sweep() and folder.is_planned():  # its config was on disk meanwhile, open to changes
            plan = Start.of(RunConfig.of(origin.admitted(folder)), apart=True).planned(folder)
        else:
            check_experiment(hydras.overrides.task, folders)
            folder.refuse_second_run()
            refuse_start(folder.path)
            run = checked(config, admit=origin.admit, folders=folders)
            begun = Start.of(run, apart=_in_sweep())
            if not _in_sweep():
                begun.refuse_early()
            folder.write_config(run.written)
            plan = begun.planned(folder)
        if ahead is not None:
            ahead.end_waiting()  # unless the launcher has told it to continue
        seal.record(folder.path, {folder.COMPOSED: OmegaConf.to_yaml(config)})  # as Hydra has written it
        try:
            return launch(plan, composed_from=origin.composed_from)["objective"]
        except ConfigurationError:
            if not _in_sweep():
                folder.remove_plan()
            raise


@contextmanager
def job_folder() -> Iterator[RunFolder]:
    """The run's folder. Prints a failure in a sweep at once, since Hydra collects them and raises only the first."""
    folder = RunFolder(HydraConfig.get().runtime.output_dir)
    try:
        yield folder
    except (ConfigurationError, RunFailed, Interrupted) as error:
        if not _in_sweep():
            from manyheads.runner.run.refused_run import clear_refused  # few runs need it

            os.chdir(HydraConfig.get().runtime.cwd)  # with hydra.job.chdir=true it is the folder that is removed
            clear_refused(folder)
            if not isinstance(error, Interrupted):
                raise Ended(error.exit_code, error) from error
        elif not isinstance(error, Interrupted):
            report(error)
        raise
    except OSError as error:
        if (lost := lost_output(error)) is None:
            raise
        raise Ended(ExitCode.FAILED, lost) from error


def _in_sweep() -> bool:
    """Whether Hydra runs this job as part of a sweep."""
    return HydraConfig.get().mode == RunMode.MULTIRUN
