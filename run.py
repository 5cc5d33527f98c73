"""Run one experiment: compose, check, freeze, launch. `python run.py --help` shows what can be chosen."""

from runner.command_line import check_experiment, command_line, job  # first: it settles how Hydra reports errors

import hydra  # isort: skip
from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig

from launchers.base import launch
from runner.compatibility import complete
from runner.config import check
from runner.provenance import record
from runner.run_folder import RunFolder


@hydra.main(version_base="1.3", config_path="conf", config_name="config")
def run(config: DictConfig) -> float | None:
    """One run, or one job of a sweep; returns the objective, for sweepers that search."""
    with job():
        check_experiment()
        folder = RunFolder(HydraConfig.get().runtime.output_dir)
        folder.refuse_second_run()
        frozen = complete(check(config))
        folder.write_config(frozen)
        record(folder, frozen)
        return launch(folder)["objective"]
    return None


if __name__ == "__main__":
    command_line(run)
