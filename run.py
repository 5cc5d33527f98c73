"""Run one experiment: compose, check, freeze, launch. `python run.py --help` shows what can be chosen."""

import os
import sys
from pathlib import Path

NAMES = str(Path(__file__).resolve().parent / ".names")
if __name__ == "__main__" and sys.path[0] != NAMES:  # this checkout's code and no other, in every child process too
    sys.path[0] = NAMES
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [NAMES, os.environ.get("PYTHONPATH")]))

# Before Hydra, since it settles how Hydra reports errors.
from manyheads.runner.config.command_line import check_experiment, command_line, in_sweep, job

import hydra  # isort: skip
from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig

from manyheads.launchers.launch import launch, prepare
from manyheads.runner.config.freeze import freeze
from manyheads.runner.provenance.record import record
from manyheads.runner.run.seal import seal_file
from manyheads.runner.trust.check import judge


@hydra.main(version_base="1.3", config_path="conf", config_name="config")
def run(config: DictConfig) -> float | None:
    """One run, or one job of a sweep; returns the objective, for sweepers that search."""
    with job() as folder:
        if not folder.is_planned():
            check_experiment(HydraConfig.get().overrides.task)
            freeze(folder, config)
        frozen = folder.read_config()
        judge(frozen)
        prepare(frozen, apart=in_sweep())
        record(folder, frozen)
        if HydraConfig.get().output_subdir == folder.composed.parent.name:  # else it is not of this run
            seal_file(folder.composed)
        return launch(folder, apart=in_sweep())["objective"]
    return None


if __name__ == "__main__":
    command_line(run)
