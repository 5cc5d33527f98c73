"""A job of a sweep with ``--once``: what an equal run answers is not run, and its folder takes the job's place."""

import gc
from functools import partial

from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig

from manyheads.launchers.experiment import start
from manyheads.launchers.flags.once.ask import answer_or_begin
from manyheads.launchers.flags.once.terms import Terms
from manyheads.launchers.launcher_option import Ahead
from manyheads.launchers.sweep.job_progress import EarlierRun
from manyheads.runner.config.origin import Origin
from manyheads.runner.errors import ConfigurationError
from manyheads.runner.records.run_result import Result
from manyheads.runner.run import seal
from manyheads.runner.run.files import matching, remove, remove_if_empty
from manyheads.runner.run.ledger import Ledger
from manyheads.runner.run.run_folder import RunFolder


def answer_job(config: DictConfig, *, terms: Terms, origin: Origin, ahead: Ahead | None = None) -> float | None:
    """Run one job as ``start`` does, and return its objective; raises EarlierRun if an equal run answers."""
    gc.enable()  # ``take`` of the command has disabled it
    hydras = HydraConfig.get()
    folder = RunFolder(hydras.runtime.output_dir)
    if not folder.is_planned():
        launcher = hydras.runtime.choices.get("hydra/launcher")
        raise ConfigurationError.at("hydra/launcher", launcher, ": --once needs hydra/launcher=manyheads, the default.")
    begin = partial(start, config, origin=origin, ahead=ahead)
    result = answer_or_begin(origin.admitted(folder), terms, begin, packages=origin.packages, apart=True)
    if not isinstance(result, Result):
        return result
    _remove(folder)
    raise EarlierRun(Ledger(str(hydras.sweep.dir)).name_of(RunFolder(result.folder).path), result.objective)


def _remove(folder: RunFolder) -> None:
    """Remove what was written for a job that is not run."""
    folder.remove_plan()
    for path in (*matching(folder.path, "*.log"), folder.path / seal.NAME):
        remove(path)
    remove_if_empty(folder.path)
