"""hydra/sweeper=search: Optuna proposes each trial from the sweep's ledger, and may prune unpromising ones."""

from dataclasses import dataclass, field
from typing import Any

from hydra.core.config_store import ConfigStore
from hydra.core.plugins import Plugins
from hydra.plugins.sweeper import Sweeper
from hydra.types import HydraContext, TaskFunction
from omegaconf import MISSING, DictConfig


@dataclass
class SearchConf:
    """``hydra.sweeper`` of a search. The samplers are those of hydra-optuna-sweeper."""

    _target_: str = "hydra_plugins.manyheads.search_sweeper.SearchSweeper"
    _recursive_: bool = False  # the search itself creates sampler and pruner, for each trial
    defaults: list[Any] = field(default_factory=lambda: [{"sampler": "tpe"}, {"pruner": "none"}])
    # Proposes trials: tpe, random, cmaes, nsgaii. With a seed, a resumed search continues as if it had not stopped.
    sampler: Any = MISSING
    # Ends trials early: none, median, halving, hyperband, percentile.
    pruner: Any = MISSING
    # minimize, maximize; auto: the direction of the metric that selects the best checkpoint.
    direction: str = "auto"
    # The column of epochs.csv by which trials are pruned; auto: the metric that selects the best checkpoint; loss: the
    # training loss in steps.csv, for trials of one long epoch.
    prune_by: str = "auto"
    n_trials: int = 20
    # Trials that are proposed together; how many of them run at once is hydra.launcher.jobs.
    n_jobs: int = 1
    # The search ends if a larger fraction of a batch of trials fails.
    max_failure_rate: float = 0.0
    # The search space, in addition to what is typed, such as optimizer.lr: interval(0.001, 0.1).
    params: dict[str, Any] | None = None


def _pruner(name: str, **keys: Any) -> None:
    ConfigStore.instance().store(
        group="hydra/sweeper/pruner", name=name, node=keys or {"_target_": None}, provider="manyheads"
    )


ConfigStore.instance().store(group="hydra/sweeper", name="search", node=SearchConf, provider="manyheads")
_pruner("none", _target_="optuna.pruners.NopPruner")
_pruner("median", _target_="optuna.pruners.MedianPruner", n_startup_trials=5, n_warmup_steps=0, interval_steps=1)
_pruner("percentile", _target_="optuna.pruners.PercentilePruner", percentile=25.0, n_startup_trials=5)
_pruner("halving", _target_="optuna.pruners.SuccessiveHalvingPruner", min_resource=1, reduction_factor=4)
_pruner("hyperband", _target_="manyheads.launchers.sweep.pruning.hyperband", min_resource=1, reduction_factor=3)


class SearchSweeper(Sweeper):
    """Runs a search; the work is in ``launchers/sweep/search.py``."""

    def __init__(self, **_: Any):
        """The arguments are not used: the search reads them from the config."""

    def setup(self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig) -> None:
        self.config, self.hydra_context = config, hydra_context
        self.launcher = Plugins.instance().instantiate_launcher(
            config=config, hydra_context=hydra_context, task_function=task_function
        )

    def sweep(self, arguments: list[str]) -> None:
        """Run the search. Raises ConfigurationError, RunFailed or Interrupted."""
        from manyheads.launchers.sweep.search import search

        assert self.config is not None
        assert self.launcher is not None
        search(self.config, self.launcher, arguments)
