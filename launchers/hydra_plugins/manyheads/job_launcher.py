"""hydra/launcher=manyheads: starts the jobs of a sweep; the config group ``launcher`` starts the ranks of each job.

Source: https://hydra.cc/docs/advanced/plugins/develop/.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from hydra.core.config_store import ConfigStore
from hydra.core.utils import JobReturn
from hydra.plugins.launcher import Launcher
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig, OmegaConf

from manyheads.launchers.sweep.sweep_options import Options


@dataclass
class ManyheadsConf(Options):
    """The keys of ``hydra.launcher``, which is in every job's config."""

    _target_: str = "hydra_plugins.manyheads.job_launcher.Manyheads"


ConfigStore.instance().store(group="hydra/launcher", name="manyheads", node=ManyheadsConf, provider="manyheads")
# As Hydra's default, but the terminal shows only warnings, since rank 0 prints there.
ConfigStore.instance().store(
    group="hydra/job_logging",
    name="manyheads",
    node={"defaults": ["default"], "handlers": {"console": {"level": "WARNING"}}},
    provider="manyheads",
)


class Manyheads(Launcher):
    """Plans all jobs, runs them, writes the ledger and a comparison. The work is in ``launchers/sweep``."""

    def __init__(self, **options: Any):
        exclude = options.pop("exclude", [])
        plain = OmegaConf.to_container(exclude) if OmegaConf.is_config(exclude) else exclude
        self._options = Options(exclude=plain, **options)
        self.pruning: Any = None  # set by a search

    def setup(self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig) -> None:
        from manyheads.launchers.sweep.run_jobs import end_as
        from manyheads.runner.config.composing import RememberingLoader
        from manyheads.runner.config.origin import Origin
        from manyheads.runner.config.schema import is_run_config
        from manyheads.runner.run.ledger import Ledger

        self._options.check()
        if is_run_config(config):
            Origin.of(task_function).ends.append(partial(end_as, Ledger(Path(str(config.hydra.sweep.dir)))))
        hydra_context.config_loader = RememberingLoader(hydra_context.config_loader)
        self._context, self._task, self._config = hydra_context, task_function, config

    def launch(self, job_overrides: Sequence[Sequence[str]], initial_job_idx: int) -> Sequence[JobReturn]:
        """One result for each list of overrides, in order; see ``manyheads.launchers.sweep.batch``."""
        from manyheads.launchers.sweep.batch import JobBatch

        batch = JobBatch(self._context, self._task, self._config, self._options, pruning=self.pruning)
        return batch.run(job_overrides, initial_job_idx)
