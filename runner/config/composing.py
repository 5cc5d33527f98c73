"""Composes the run config of some overrides, without a run."""

from collections.abc import Sequence

from hydra import compose, initialize_config_dir
from omegaconf import OmegaConf

from manyheads.runner.config.arguments import CommandLine, searching
from manyheads.runner.config.command_line import check_experiment, explained
from manyheads.runner.config.freeze import checked
from manyheads.runner.config.lookup import CONF
from manyheads.runner.config.origin import Origin
from manyheads.runner.option.run_config import RunConfig


def run_config(words: Sequence[str], line: CommandLine, origin: Origin) -> RunConfig:
    """The run config as it would be frozen. ``words``: overrides of groups and keys. Raises ConfigurationError."""
    folders = line.folders
    path = [searching(folders[1:])] if folders[1:] else []
    check_experiment(OmegaConf.create(list(words)), folders)
    with explained(line), initialize_config_dir(str(CONF), version_base="1.3"):
        composed = compose("config", [*words, *path])
    return checked(composed, trust=origin.trust, folders=folders)
