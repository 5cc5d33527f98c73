"""Run one experiment: compose, check, freeze, launch. `python run.py --help` shows what can be chosen."""

import os
import sys
from pathlib import Path

NAMES = str(Path(__file__).resolve().parent / ".names")
if __name__ == "__main__" and sys.path[0] != NAMES:  # this checkout's code and no other, in every child process too
    sys.path[: not sys.flags.safe_path] = [NAMES]  # in this file's folder's place, if that is there
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [NAMES, os.environ.get("PYTHONPATH")]))
    os.environ["PYTHONSAFEPATH"] = "1"  # nor what lies in the working directory, which somebody may have sent


import hydra
from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig

from manyheads.launchers.launch import launch, prepare
from manyheads.runner.config.arguments import CommandLine
from manyheads.runner.config.command_line import check_experiment, exit_code, explained, in_sweep, job
from manyheads.runner.config.freeze import freeze
from manyheads.runner.config.lookup import searched
from manyheads.runner.config.origin import Origin, settle
from manyheads.runner.provenance.record import record
from manyheads.runner.run.seal import seal_file
from manyheads.runner.trust.check import refuse_untrusted


def run(config: DictConfig, *, origin: Origin) -> float | None:
    """One run, or one job of a sweep; returns the objective, for sweepers that search."""
    with job() as folder:
        if not (in_sweep() and folder.is_planned()):
            hydras = HydraConfig.get()
            folders = searched(hydras.runtime.config_sources)
            check_experiment(hydras.overrides.task, folders)
            freeze(folder, config, trust=origin.trust, folders=folders)
        frozen = folder.read_config()
        refuse_untrusted(frozen, origin.trust)  # one that was planned has been on disk meanwhile
        prepare(frozen, apart=in_sweep())
        record(folder, frozen, composed_from=origin.composed_from)
        if HydraConfig.get().output_subdir == folder.composed.parent.name:  # else it is not of this run
            seal_file(folder.composed)
        return launch(folder, apart=in_sweep())["objective"]


def main() -> None:
    """Let Hydra compose what was typed, and call ``run`` for each job."""
    line, origin = settle(CommandLine(tuple(sys.argv[1:])))
    sys.argv[1:] = line.arguments
    os.environ["HYDRA_FULL_ERROR"] = "1"  # Hydra raises its errors instead of printing them
    with explained(line):
        hydra.main(version_base="1.3", config_path="conf", config_name="config")(origin.bind(run))()


if __name__ == "__main__":
    sys.exit(exit_code(main))
