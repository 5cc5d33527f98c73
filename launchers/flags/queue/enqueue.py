"""Freezes the run that was typed with ``--queue``, and queues it."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig, OmegaConf

from manyheads.launchers.companions import Accompanied, Span
from manyheads.launchers.experiment import job_folder, run_typed
from manyheads.launchers.flags.queue.entries import RunQueue
from manyheads.launchers.launcher_option import FREE
from manyheads.runner.config.command_line import CommandLine
from manyheads.runner.config.freeze import checked
from manyheads.runner.config.hydra_errors import check_experiment
from manyheads.runner.config.lookup import searched
from manyheads.runner.config.origin import Origin
from manyheads.runner.errors import ConfigurationError, printable
from manyheads.runner.machine import invocation
from manyheads.runner.option.run_config import RunConfig
from manyheads.runner.records.run_result import Result, result_if_any
from manyheads.runner.run import seal
from manyheads.runner.run.refused_run import remove_unstarted
from manyheads.runner.wording import counted, tell

FLAG = "--queue"
PRINTING = ("cfg", "info", "help", "hydra_help", "version")


def enqueued(arguments: Sequence[str]) -> Result | None:
    """Queue the run that was typed, and return it. Raises as ``run_typed``."""
    words = [word for word in arguments if word != FLAG]
    _refuse_without_effect(words)
    return run_typed(words, wants_answer=True, task=enqueue)  # type: ignore[return-value]


def _refuse_without_effect(words: Sequence[str]) -> None:
    flags = CommandLine(tuple(words), Path.cwd()).flags
    if flags.multirun:
        raise ConfigurationError(
            f"{FLAG} is for single runs. Queue each job of the sweep with a command of its own, or start the sweep "
            "with launcher.devices=free, whose jobs then wait for free devices.",
            key=FLAG,
        )
    if printing := next((name for name in PRINTING if getattr(flags, name, None)), None):
        raise ConfigurationError(f"--{printing.replace('_', '-')} starts no run. Leave out {FLAG}.", key=FLAG)


def enqueue(config: DictConfig, *, origin: Origin, **_: Any) -> None:
    """Freeze a run, record where it came from, and queue it; whatever fails leaves nothing of it.

    A task of Hydra's, as ``experiment.start``.
    """
    with job_folder() as folder:
        hydras = HydraConfig.get()
        origin.answers.append(partial(result_if_any, folder.path))
        folders = searched(hydras.runtime.config_sources)  # type: ignore[arg-type]  # a config, which is a mapping
        check_experiment(hydras.overrides.task, folders)
        folder.refuse_second_run()
        run = _placed(checked(config, admit=origin.admit, folders=folders), hydras.overrides.task)
        try:
            folder.write_config(run.written)
            seal.record(folder.path, {folder.COMPOSED: OmegaConf.to_yaml(config)})
            with Accompanied(folder, run, composed_from=origin.composed_from).with_companions(Span.FIRST):
                pass
            with RunQueue.created() as queue, queue.turn():
                ahead = queue.add(folder)
        except BaseException:
            remove_unstarted(folder)
            raise
        where = f", behind {counted(ahead, 'other')}" if ahead else ""
        tell(f"{printable(folder)} is in the queue{where}. Workers run it: {invocation.command('work')}")


def _placed(run: RunConfig, typed: Sequence[str]) -> RunConfig:
    """The run on free devices of this machine. Raises ConfigurationError for one that something else places."""
    launcher = run.launcher
    if not launcher.is_here or "devices" not in launcher.section:
        why = f": what starts its ranks also finds room for them, so {FLAG} has nothing to add. Leave it out."
        raise ConfigurationError.at("launcher", launcher.name, why)
    if "launcher.devices=any" in typed:
        raise ConfigurationError.at("launcher.devices", "any", f": {FLAG} takes free devices. Leave one of them out.")
    if launcher.wait is not None:
        why = f": with {FLAG} a run waits without a limit. Leave one of them out."
        raise ConfigurationError.at("launcher.wait", launcher.wait, why)
    return run.changed(launcher={"devices": FREE})
