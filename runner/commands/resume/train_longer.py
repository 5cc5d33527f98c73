"""Continues a run in a new folder, with more epochs or any other change."""

from manyheads.runner.config.command_line import typed_values
from manyheads.runner.config.fresh_folder import RUN_DIR, new_folder
from manyheads.runner.config.quoting import quoted
from manyheads.runner.config.typed_packages import split_typed
from manyheads.runner.errors import ConfigurationError
from manyheads.runner.machine import invocation
from manyheads.runner.option.tree import Section
from manyheads.runner.provenance.copies import copies, overrides_of
from manyheads.runner.provenance.started_in import find_where_started
from manyheads.runner.records.rerun import Rerun, longer_command
from manyheads.runner.run.files import is_locked
from manyheads.runner.run.json_types import ResultJson
from manyheads.runner.run.run_folder import RunFolder
from manyheads.runner.wording import counted

START = ("checkpoint.load=", "checkpoint.resume=")


def continue_run(folder: RunFolder, overrides: list[str]) -> RunFolder:
    """Train from a run's last checkpoint, with its config and these overrides; return the new run's folder.

    Raises ConfigurationError if there is no checkpoint or nothing left to train, and RunFailed.
    """
    _, typed = split_typed(overrides)
    config = folder.read_config()
    if other := next((override for override in typed if override.lstrip("+").startswith(START)), None):
        key, _, value = other.partition("=")
        message = f"{other}: `resume` continues from the run's own last checkpoint. Leave it out."
        raise ConfigurationError(message, key=key.lstrip("+"), value=value)
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
    trainer = dict(config["trainer"])
    given = typed_values(typed)
    trainer |= {key.removeprefix("trainer."): value for key, value in given.items() if key.startswith("trainer.")}
    if any(override.startswith("data.") for override in typed):
        return True
    limits = [limit for key in ("max_steps", "stop_after") if isinstance(limit := trainer.get(key), int)]
    if result.get("ended") and trainer.get(result["ended"]) != config["trainer"].get(result["ended"]):
        return True
    if limits:
        return min(limits) > result.get("steps", 0)
    was_cut = bool(result.get("ended")) or any(
        config["trainer"].get(key) is not None for key in ("max_steps", "stop_after")
    )
    return not isinstance(trainer["epochs"], int) or trainer["epochs"] > result.get("epochs", 0) - was_cut
