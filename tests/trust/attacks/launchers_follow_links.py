"""Somebody who can write to the folder of sweeps plants links where Hydra's own launchers and sweepers write."""

from unittest.mock import Mock

import pytest
from omegaconf import OmegaConf

from manyheads.runner.config.fresh_folder import BASIC_SWEEPER, FreshFolder
from manyheads.runner.errors import Ended

OURS = "hydra_plugins.manyheads.job_launcher.Manyheads"
HYDRAS = "hydra._internal.core_plugins.basic_launcher.BasicLauncher"


def attack(scene):
    shared, mine = scene.new("shared", mode=0o777), scene.new("mine")
    for folder, launcher, sweeper in ((shared, HYDRAS, BASIC_SWEEPER), (shared, OURS, "optuna.OptunaSweeper")):
        with pytest.raises(Ended) as end:
            start(folder, launcher, sweeper)
        assert "where others may write" in str(end.value.error)
    start(shared, OURS, BASIC_SWEEPER)
    start(mine, HYDRAS, BASIC_SWEEPER)


def start(folder, launcher, sweeper):
    choices = {"hydra/launcher": "basic", "hydra/sweeper": "optuna"}
    hydra = {
        "sweep": {"dir": str(folder)},
        "overrides": {"hydra": [f"hydra.sweep.dir={folder}"]},
        "launcher": {"_target_": launcher},
        "sweeper": {"_target_": sweeper},
        "runtime": {"choices": choices},
    }
    FreshFolder().on_multirun_start(OmegaConf.create({"hydra": hydra}), task_function=Mock())
