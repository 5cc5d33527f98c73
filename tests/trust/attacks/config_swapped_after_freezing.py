"""Somebody who can write above a run's folder replaces its config, once it is frozen and before it is prepared."""

import pytest

from manyheads.launchers.launch import prepare
from manyheads.runner.errors import ConfigurationError
from manyheads.runner.run.run_folder import RunFolder
from tests.in_process import config
from tests.trust.attacks.scene import SMALL


def attack(scene):
    theirs = scene.new("theirs", evil=scene.evil)
    run, frozen = RunFolder(scene.new("run")), config(*SMALL)
    run.write_config(frozen)
    RunFolder(run.path).write_config({**frozen, "model": {"_target_": f"{theirs}/evil.py:Net", "name": "custom"}})
    with pytest.raises(ConfigurationError, match="was edited while the run was starting"):
        prepare(run, apart=True)
    scene.assert_nothing_ran()
