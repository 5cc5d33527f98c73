"""The one moment in which a composed config becomes a run's: checked, completed, written. Nothing changes it later."""

from typing import Any

from omegaconf import DictConfig

from manyheads.runner.config.checks.complete import complete
from manyheads.runner.config.schema import check
from manyheads.runner.run.run_folder import RunFolder
from manyheads.runner.trust.check import judge


def checked(composed: DictConfig, *, timeout: float | None = None) -> dict[str, Any]:
    """The run config that ``freeze`` writes."""
    config = check(composed)
    judge(config)
    complete(config)
    if config["launcher"]["timeout"] is None:
        config["launcher"]["timeout"] = timeout
    return config


def freeze(folder: RunFolder, composed: DictConfig, *, timeout: float | None = None) -> dict[str, Any]:
    """Write run.yaml and return its content. ``timeout``: minutes, for a launcher that has none of its own.

    Raises ConfigurationError for what is wrong, Unavailable for what is right but not there on this machine.
    """
    folder.refuse_second_run()
    frozen = checked(composed, timeout=timeout)
    folder.write_config(frozen)
    return frozen
