"""Turns a composed config into a run's config, once: checked, completed and written. It never changes afterwards."""

from typing import Any

from omegaconf import DictConfig

from manyheads.runner.config.complete import complete
from manyheads.runner.config.lookup import OWN, Folders
from manyheads.runner.config.schema import check
from manyheads.runner.machine import hardware
from manyheads.runner.run.errors import warn
from manyheads.runner.run.run_folder import RunFolder
from manyheads.runner.trust.check import plain, refuse_untrusted
from manyheads.runner.trust.own import Trust


def checked(
    composed: DictConfig, *, trust: Trust | None = None, timeout: float | None = None, folders: Folders = OWN
) -> dict[str, Any]:
    """The run config that ``freeze`` writes, with the same arguments and errors."""
    refuse_untrusted(plain(composed), trust)
    config = check(composed, folders)
    refuse_untrusted(config, trust)  # as it will run; classes are looked up after this
    complete(config)
    if config["launcher"]["timeout"] is None:
        config["launcher"]["timeout"] = timeout
    return config


def freeze(
    folder: RunFolder,
    composed: DictConfig,
    *,
    trust: Trust | None = None,
    timeout: float | None = None,
    folders: Folders = OWN,
) -> dict[str, Any]:
    """Write run.yaml and return its content.

    trust: what the user trusts of the config, None for the user's own; timeout: minutes, if the launcher has none;
    folders: where Hydra found the config's options.

    Raises ConfigurationError for an invalid config, Unavailable for a valid one that this machine cannot run.
    """
    folder.refuse_second_run()
    frozen = checked(composed, trust=trust, timeout=timeout, folders=folders)
    if composed.trainer.device == "auto" != frozen["trainer"]["device"] == "cpu" and (why := hardware.unused_gpus()):
        warn(f"trainer.device=auto: this run trains on the CPU. {why}. Set trainer.device=cpu if that is meant.")
    folder.write_config(frozen)
    return frozen
