"""What Hydra makes of conf/, composed once in a process for each list of overrides: a tenth of a second each time."""

import copy
from functools import cache

from hydra import compose, initialize_config_dir
from omegaconf import DictConfig

from manyheads.runner.config.lookup import CONF


def composed(*overrides: str) -> DictConfig:
    """What Hydra hands to ``python run.py <overrides>``, to be changed at will."""
    return copy.deepcopy(_composed(*overrides))


@cache
def _composed(*overrides: str) -> DictConfig:
    with initialize_config_dir(str(CONF), version_base="1.3"):
        return compose("config", list(overrides))
