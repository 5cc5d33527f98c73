"""``python -m runner resume``: resume a run or a sweep in its own folder, or train a run longer in a new one."""

import argparse
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from manyheads.launchers.companions import Accompanied, Span
from manyheads.launchers.experiment import run_typed
from manyheads.launchers.resume_run import resume_run
from manyheads.launchers.sweep.comparison import answer_of
from manyheads.launchers.sweep.run_jobs import command_of
from manyheads.launchers.sweep.run_jobs import resume as resume_sweep
from manyheads.runner.checkpoint.fetch import fetch
from manyheads.runner.commands import A_RUN
from manyheads.runner.config.command_line import typed_values
from manyheads.runner.config.fresh_folder import RESUMED, RUN_DIR, new_folder
from manyheads.runner.config.quoting import quoted
from manyheads.runner.config.typed_packages import split_typed
from manyheads.runner.errors import ConfigurationError, Ended, Interrupted
from manyheads.runner.machine import invocation
from manyheads.runner.option.tree import Section
from manyheads.runner.provenance.copies import copies, overrides_of
from manyheads.runner.provenance.past_config import admitted
from manyheads.runner.provenance.started_in import find_where_started, in_directory_of
from manyheads.runner.records.rerun import Rerun, longer_command
from manyheads.runner.records.run_result import Result
from manyheads.runner.run import scratch
from manyheads.runner.run.files import is_locked
from manyheads.runner.run.json_types import ResultJson
from manyheads.runner.run.ledger import Ledger
from manyheads.runner.run.objects import Address, is_address
from manyheads.runner.run.run_folder import RunFolder
from manyheads.runner.wording import counted

if TYPE_CHECKING:
    from manyheads.runner.records.compared_runs import ComparedRuns

HELP = "resume a run or a sweep that was interrupted; with trainer.epochs=30 or other changes, in a new folder"
START = ("checkpoint.load=", "checkpoint.resume=")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument("run_folder", metavar="run", help=f"{A_RUN}, or the address of its copy, s3://...")
    parser.add_argument(
        "overrides",
        nargs="*",
        help="trainer.epochs=30 and other changes: train longer in a new folder, from the last checkpoint; "
        "trust=[my_package]: allow its code in configs from others",
    )


def run(arguments: argparse.Namespace) -> "Result | ComparedRuns | None":
    """Resume a run or a sweep in its folder, or train a run longer in a new one. Raises ConfigurationError."""
    packages, changes = split_typed(arguments.overrides)
    path = str(_fetched(arguments.run_folder)) if is_address(arguments.run_folder) else arguments.run_folder
    if not changes:
        return resume(path, packages, wants_answer=arguments.json)
    folder = RunFolder(path)
    if Ledger(folder.path).exists() or (folder.path / "multirun.yaml").exists():
        raise ConfigurationError(f"{changes[0]}: a sweep resumes as it was frozen. Name one of its runs to change it.")
    return Result.of(continue_run(folder, arguments.overrides).path)


def resume(path: str, packages: Sequence[str] = (), *, wants_answer: bool = False) -> "Result | ComparedRuns | None":
    """Resume a run from its last checkpoint, or from its start if it has none; or resume a sweep.

    packages: the user trusts their code. Returns None if this machine only joined a run of several machines, and for a
    sweep without ``wants_answer``. Raises ConfigurationError, RunFailed, Interrupted, and for a sweep Ended.
    """
    if (arguments := command_of(Path(path))) is not None:
        ledger = Ledger(path)
        with in_directory_of(ledger):
            if not ledger.entries():
                print(f"{RunFolder(ledger.sweep)} was interrupted while it was being planned. Planning its jobs again.")
            os.environ[RESUMED] = str(ledger.sweep)
            return run_typed(arguments, wants_answer=wants_answer)
    if Ledger(path).exists():
        try:
            resume_sweep(Path(path), packages)
        except (Ended, Interrupted) as reason:
            reason.answer = answer_of(Path(path)) if wants_answer else None
            raise
        return answer_of(Path(path)) if wants_answer else None
    folder = RunFolder(path)
    if (folder.path / "multirun.yaml").exists():
        raise ConfigurationError(f"{folder}: this sweep has no ledger, or ended while it was being planned.")
    if (result := folder.completed()) is not None:
        _conclude(folder, packages, steps=result.get("steps", 0))
        return Result.of(path)
    return resume_run(folder, packages)


def _conclude(folder: RunFolder, packages: Sequence[str], *, steps: int) -> None:
    """Say how to train a complete run longer, and store the rest of its mirror. Raises ConfigurationError."""
    scratch.sweep_all()  # as every start of a run does
    config = folder.read_config()
    print(f"{folder} is already complete: {counted(steps, 'step')}. Its results are in {folder.result.name}.")
    print(f"To train longer, in a new folder: {longer_command(folder, config)}")
    if config["checkpoint"].get("mirror") and not config["trainer"].get("evaluate_only"):
        with Accompanied(folder, admitted(folder, packages)).with_companions(Span.STORED):
            pass  # at whose end the rest is stored


def _fetched(address: str) -> Path:
    """Fetch a run from object storage into a new folder, and return that. Raises ConfigurationError."""
    source = Address.of(address, key="run")
    if (folder := Path("outputs", source.name).absolute()).exists():
        raise ConfigurationError(
            f"{RunFolder(folder)} already exists. Resume that, or move it away to fetch {source} again.", key="run"
        )
    fetch(source, folder)
    print(f"fetched {source} into {RunFolder(folder)}")
    return folder


def continue_run(folder: RunFolder, overrides: list[str]) -> RunFolder:
    """Train from a run's last checkpoint, with its config and these overrides; return the new run's folder.

    Raises ConfigurationError if there is no checkpoint or nothing left to train, and RunFailed.
    """
    _, typed = split_typed(overrides)
    config = folder.read_config()
    if other := next((override for override in typed if override.lstrip("+").startswith(START)), None):
        key, _, value = other.partition("=")
        raise ConfigurationError(
            f"{other}: `resume` continues from the run's own last checkpoint. Leave it out.",
            key=key.lstrip("+"),
            value=value,
        )
    if is_locked(folder.config):
        raise ConfigurationError(f"{folder} is being run by another process. Wait for it, or end it.")
    if not folder.last_checkpoint.exists():
        raise ConfigurationError(
            f"{folder} has no checkpoint to resume from: {folder.last_checkpoint.name} does not exist. Start over: "
            f"{invocation.command('train', '--config-path', folder.path, '--config-name', 'run', *typed)}"
        )
    result = folder.read_result() or {}
    if result.get("status") == "completed" and not _asks_for_more(config, result, typed):
        epochs, steps = counted(result.get("epochs", 0), "epoch"), counted(result.get("steps", 0), "step")
        raise ConfigurationError(
            f"{folder} is complete: {epochs}, {steps}; with "
            f"{' '.join(typed)} nothing is left to train. To train longer: {longer_command(folder, config)}"
        )
    find_where_started(folder)
    new = RunFolder(new_folder(overrides))
    start = ("checkpoint.load=null", f"checkpoint.resume={quoted(folder.last_checkpoint)}")
    rest = [override for override in overrides if not override.startswith(RUN_DIR)]
    used = overrides_of(copies(folder, config, chosen=typed_values(typed), edited=False))
    Rerun(folder.config).train(new, *used, *rest, *start)
    return new


def _asks_for_more(config: Section, result: ResultJson, typed: list[str]) -> bool:
    """Whether the overrides ask for a longer run, by the keys that limit it; changes of data are left to the ranks."""
    before, ended = config["trainer"], result.get("ended")
    changes = {key: value for key, value in typed_values(typed).items() if key.startswith("trainer.")}
    trainer = before | {key.removeprefix("trainer."): value for key, value in changes.items()}
    if any(override.startswith("data.") for override in typed) or (ended and trainer.get(ended) != before.get(ended)):
        return True
    limits = ("max_steps", "stop_after")
    if steps := [limit for key in limits if isinstance(limit := trainer.get(key), int)]:
        return min(steps) > result.get("steps", 0)
    was_cut = bool(ended) or any(before.get(key) is not None for key in limits)
    return not isinstance(trainer["epochs"], int) or trainer["epochs"] > result.get("epochs", 0) - was_cut
