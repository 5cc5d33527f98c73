"""The way of a run config, pass by pass: from what Hydra composed to what is frozen. It never changes afterwards.

All of it happens without torch, before any process of the run starts.
"""

from collections.abc import Callable

from omegaconf import DictConfig

from manyheads.runner.config.checks import check_batch, check_graphs, check_trainer, with_checkpoint
from manyheads.runner.config.lookup import OWN, Folders
from manyheads.runner.config.resolve_machine import on_machine
from manyheads.runner.config.schema import check
from manyheads.runner.errors import Unavailable, warn
from manyheads.runner.machine import hardware
from manyheads.runner.option.declared import GROUPS
from manyheads.runner.option.run_config import RunConfig
from manyheads.runner.run.run_folder import RunFolder
from manyheads.runner.trust.check_trust import plain, refuse_untrusted
from manyheads.runner.trust.trust_store import Trust

# The launcher decides how its ranks communicate, which strategies ask for; looking for data may take long.
ORDER = sorted(GROUPS, key=lambda group: {"launcher": 0, "data": 2}.get(group, 1))


def freeze(
    folder: RunFolder,
    composed: DictConfig,
    *,
    trust: Trust | None = None,
    timeout: float | None = None,
    folders: Folders = OWN,
    check: Callable[[RunConfig], None] | None = None,
) -> RunConfig:
    """Write run.yaml and return its content. The other arguments and errors are those of ``checked``.

    check: called with the checked config before anything is written; may raise ConfigurationError.
    """
    folder.refuse_second_run()
    run = checked(composed, trust=trust, timeout=timeout, folders=folders)
    if check is not None:
        check(run)
    folder.write_config(run.written)
    return run


def checked(
    composed: DictConfig, *, trust: Trust | None = None, timeout: float | None = None, folders: Folders = OWN
) -> RunConfig:
    """What ``freeze`` writes.

    trust: what the user trusts of the config, None for the user's own; timeout: minutes, if the launcher has none;
    folders: where Hydra found the config's options.

    Raises ConfigurationError for an invalid config, Unavailable for a valid one that this machine cannot run.
    """
    if trust is not None:
        refuse_untrusted(plain(composed), trust)
    config = check(composed, folders)
    refuse_untrusted(config, trust)  # as it will run; classes are looked up after this
    run = completed(RunConfig.of(config))
    if config["trainer"]["device"] == "auto" and not run.on_gpus and (why := hardware.unused_gpus()):
        warn(f"trainer.device=auto: this run trains on the CPU. {why}. Set trainer.device=cpu if that is meant.")
    return run.changed(launcher={"timeout": timeout}) if run.launcher.timeout is None else run


def completed(run: RunConfig) -> RunConfig:
    """The config for this machine, with every ``auto`` resolved and all settings checked against each other.

    Raises ConfigurationError, or Unavailable for a valid config that this machine cannot run.
    """
    with run.launcher.on_its_machines(run) as known:
        run = on_machine(known)
        refuse_unavailable(run)
        for group in ORDER:
            run = getattr(run, group).resolved(run)
        return _checked(run)


def refuse_unavailable(run: RunConfig) -> None:
    """Raises Unavailable for options that this machine lacks."""
    for group in reversed(ORDER):  # a strategy is reported before the launcher that it brings
        if reason := getattr(run, group).unavailable():
            raise Unavailable.at(group, getattr(run, group).name, f": {reason}.")
    for name, entry in run.logger.items():
        if reason := entry.unavailable():
            raise Unavailable(f"logger.{name}: {reason}.", key=f"logger.{name}")


def _checked(run: RunConfig) -> RunConfig:
    for group in ORDER:
        if group != "data":
            getattr(run, group).check_keys()
            getattr(run, group).check_run(run)
    check_batch(run)  # after what is missing: a sweep skips such a job, whatever its batch
    run = with_checkpoint(run)
    check_graphs(run.trainer)
    check_trainer(run)
    run.data.check_keys()
    run.data.check_run(run)
    return run
