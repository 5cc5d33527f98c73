"""A search: trials proposed by Optuna, each a job of a sweep, on any number of ranks.

The study is rebuilt from the ledger for each batch. So a search that was stopped and resumed continues as if it had not
been interrupted, and there is no second store that could disagree.
"""

import logging
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hydra.plugins.launcher import Launcher
from hydra.utils import instantiate
from omegaconf import DictConfig, OmegaConf

from manyheads.launchers.sweep.arguments import SEARCH, remember_arguments
from manyheads.launchers.sweep.pruning import NoPruning, Pruning
from manyheads.launchers.sweep.resume import finish
from manyheads.launchers.sweep.trials import LOSS, jobs, trials
from manyheads.runner.run.errors import ConfigurationError, RunFailed
from manyheads.runner.run.failure import Failure
from manyheads.runner.run.ledger import Ledger
from manyheads.runner.run.run_folder import RunFolder

if TYPE_CHECKING:
    from optuna.study import Study

DIRECTIONS = {"min": "minimize", "max": "maximize"}


def search(config: DictConfig, launcher: Launcher, arguments: list[str]) -> None:
    """Run trials until the requested number is reached. Raises ConfigurationError, RunFailed and Interrupted."""
    one = Search(config, launcher, arguments)
    remember_arguments(Path(str(config.hydra.sweep.dir)), SEARCH)
    one.run()


class Search:
    """``arguments``: what was typed, the space to search in included."""

    def __init__(self, config: DictConfig, launcher: Launcher, arguments: list[str]):
        logging.getLogger("alembic").setLevel(logging.WARNING)  # which Optuna imports, and which tells every step
        from hydra_plugins.hydra_optuna_sweeper._impl import create_params_from_overrides

        self._hydra, self._own, self._launcher = config.hydra, config.hydra.sweeper, launcher
        params = [f"{key}={value}" for key, value in (self._own.params or {}).items()]
        self._space, self._fixed = create_params_from_overrides([*params, *arguments])
        self._ledger = Ledger(Path(str(config.hydra.sweep.dir)))
        self._monitor, self._direction = "", str(self._own.direction)
        self._check()

    def run(self) -> None:
        if self._ledger.exists():
            finish(self._ledger)  # what was begun before the search was stopped
        while (done := self._done()) < self._own.n_trials:
            study = self._study()
            batch = range(done, min(self._own.n_trials, done + self._own.n_jobs))
            asked = {number: self._ask(study, number) for number in batch}
            overrides = [
                tuple(f"{name}={value}" for name, value in {**trial.params, **self._fixed}.items())
                for trial in asked.values()
            ]
            self._launcher.pruning = self._pruning(asked)  # type: ignore[attr-defined]
            self._launcher.launch(overrides, initial_job_idx=done)
            self._refuse_failures(batch)
        self._conclude()

    def _check(self) -> None:
        if self._direction not in ("auto", *DIRECTIONS.values()):
            allowed = f"auto, {', '.join(DIRECTIONS.values())}"
            raise ConfigurationError(f"hydra.sweeper.direction={self._direction} is not allowed. Allowed: {allowed}.")
        if not self._space:
            raise ConfigurationError(
                "a search has nothing to vary. Give it a space, such as optimizer.lr=interval(0.001,0.1)."
            )
        if str(self._own.sampler._target_).endswith("GridSampler"):
            raise ConfigurationError("hydra/sweeper/sampler=grid is a sweep: name the values, without hydra/sweeper.")
        if self._prunes and self._hydra.launcher.get("repeat", 1) > 1:
            raise ConfigurationError("hydra.sweeper.pruner works with hydra.launcher.repeat=1 only. Leave one out.")
        if self._prunes and not hasattr(self._launcher, "pruning"):
            raise ConfigurationError("hydra.sweeper.pruner works with hydra/launcher=manyheads only. Leave one out.")

    @property
    def _prunes(self) -> bool:
        return not str(self._own.pruner._target_).endswith("NopPruner")

    def _done(self) -> int:
        return sum(1 for _ in jobs(self._ledger))

    def _study(self) -> "Study":
        """All that is known, in a study in memory."""
        import optuna

        optuna.logging.set_verbosity(optuna.logging.WARNING)
        self._learn()
        direction = "minimize" if self._direction == "auto" else self._direction
        study = optuna.create_study(direction=direction, pruner=instantiate(self._own.pruner))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)  # as Optuna 2 calls them
            study.add_trials(trials(self._ledger, self._space, by=self._column, sign=self._sign))
        return study

    def _learn(self) -> None:
        """Which metric is monitored, and which way is better: the first job that completed says so."""
        for entries in jobs(self._ledger) if not self._monitor else ():
            result = RunFolder(self._ledger.sweep / entries[0].folder).read_result() or {}
            scores: Mapping[str, str] = result.get("scores") or {}
            if entries[0].state == "completed" and scores:
                self._monitor = scores["monitor"]
                if self._direction == "auto":
                    self._direction = DIRECTIONS.get(scores["direction"], "minimize")
                return

    @property
    def _column(self) -> str:
        return self._monitor if self._own.prune_by == "auto" else str(self._own.prune_by)

    @property
    def _sign(self) -> int:
        return -1 if self._column == LOSS and self._direction == "maximize" else 1

    def _ask(self, study: "Study", number: int) -> Any:
        """A new trial. The sampler's seed is that of this trial, whether or not the search was stopped before it."""
        seed = OmegaConf.select(self._own.sampler, "seed")
        more = {} if seed is None else {"seed": seed + number}
        study.sampler = instantiate(self._own.sampler, **more)
        return study.ask(self._space)

    def _pruning(self, asked: dict[int, Any]) -> NoPruning:
        if not self._prunes or not self._column:
            return NoPruning()
        return Pruning(self._ledger, asked, by=self._column, sign=self._sign)

    def _refuse_failures(self, batch: range) -> None:
        states = {entries[0].job: {entry.state for entry in entries} for entries in jobs(self._ledger)}
        failed = [job for job in batch if not states.get(job, {"failed"}) <= {"completed", "pruned"}]
        if len(failed) / len(batch) > self._own.max_failure_rate:
            message = (
                f"{len(failed)} of {len(batch)} trials failed. Allowed: a fraction of "
                f"hydra.sweeper.max_failure_rate={self._own.max_failure_rate:g}."
            )
            raise RunFailed(Failure(type="SearchFailed", message=message))

    def _conclude(self) -> None:
        """Say which trial was the best, and write it down as Optuna's own sweeper does."""
        study = self._study()
        completed = [trial for trial in study.trials if trial.value is not None and trial.state.name == "COMPLETE"]
        if not completed:
            return
        best = study.best_trial
        content = {"name": "optuna", "best_params": dict(best.params), "best_value": best.value}
        OmegaConf.save(OmegaConf.create(content), self._ledger.sweep / "optimization_results.yaml")
        chosen = " ".join(f"{name}={value}" for name, value in best.params.items())
        print(f"best of {len(study.trials)} trials: {best.number}, {self._monitor} {best.value:.6g}: {chosen}")
