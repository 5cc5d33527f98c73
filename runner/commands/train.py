"""``manyheads train``, ``python run.py``: run one experiment, or with -m a sweep: compose, check, freeze, launch."""

import os
import sys
from collections.abc import Sequence
from pathlib import Path

import hydra
from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig, OmegaConf

from manyheads.runner.config.command_line import CommandLine
from manyheads.runner.config.freeze import checked, freeze
from manyheads.runner.config.fresh_folder import is_met_elsewhere
from manyheads.runner.config.job_context import check_experiment, explained, in_sweep, job
from manyheads.runner.config.lookup import CONF, searched
from manyheads.runner.config.origin import Origin, resolve_origin
from manyheads.runner.machine import invocation
from manyheads.runner.run import seal
from manyheads.runner.trust.authorize import refuse_untrusted_run

HELP = "run one experiment, or with -m a sweep; takes group=option, key=value and Hydra's flags"


def take(arguments: Sequence[str]) -> None:
    """Let Hydra compose what was typed, and call ``start`` for each job."""
    home = Path.cwd() if invocation.by_script() else CONF.parent
    line, origin = resolve_origin(CommandLine(tuple(arguments), home))
    sys.argv[1:] = line.absolute().arguments
    os.environ["HYDRA_FULL_ERROR"] = "1"  # Hydra raises its errors instead of printing them
    OmegaConf.register_new_resolver("command", invocation.command, replace=True)  # for the help
    with explained(line):
        hydra.main(version_base="1.3", config_path=str(CONF), config_name="config")(origin.bind(start))()


def start(config: DictConfig, *, origin: Origin) -> float | None:
    """One run, or one job of a sweep; returns the objective, for sweepers that search."""
    from manyheads.launchers.launch import launch, prepare, refuse_early  # not to print a config or the help

    with job() as folder:
        hydras = HydraConfig.get()
        if is_met_elsewhere(config.get("launcher", {})):
            from manyheads.launchers.nodes.joining import join  # few runs need it

            join(checked(config, trust=origin.trust, folders=searched(hydras.runtime.config_sources)))  # type: ignore[arg-type]
            return None
        if is_planned := in_sweep() and folder.is_planned():  # it has been on disk meanwhile
            refuse_untrusted_run(folder, () if origin.trust is None else origin.trust.packages)
        if not is_planned:
            folders = searched(hydras.runtime.config_sources)  # type: ignore[arg-type]  # a config, which is a mapping
            check_experiment(hydras.overrides.task, folders)
            early = None if in_sweep() else refuse_early
            freeze(folder, config, trust=origin.trust, folders=folders, check=early)
        seal.record(folder.path, {folder.COMPOSED: OmegaConf.to_yaml(config)})  # as Hydra has written it
        plan = prepare(folder, apart=in_sweep())
        return launch(plan, composed_from=origin.composed_from)["objective"]
