"""A search: trials proposed by Optuna, each a job of a sweep, on any number of ranks.

A resumed search goes through all its batches again, and takes from the ledger which trials were proposed and how they
ended. So it continues as if it had not been interrupted, and there is no second store that could disagree.
"""

import logging
import math
import warnings
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from hydra.plugins.launcher import Launcher
from omegaconf import DictConfig, OmegaConf

from manyheads.launchers.sweep.pruning import LOSS, Judge, NoPruning, Pruning, Reports, jobs, parameters_of
from manyheads.launchers.sweep.run_jobs import finish
from manyheads.runner.errors import ConfigurationError, Failure, Kind, RunFailed, not_allowed
from manyheads.runner.option.locate import instantiate_named
from manyheads.runner.records.load_run import read_columns
from manyheads.runner.run.files import write_whole
from manyheads.runner.run.json_types import ScoresJson
from manyheads.runner.run.ledger import Entry, Ledger
from manyheads.runner.run.run_folder import RunFolder
from manyheads.runner.run.score_versions import unlike, version_of

if TYPE_CHECKING:
    from optuna.study import Study
    from optuna.trial import FrozenTrial, Trial

DIRECTIONS = {"min": "minimize", "max": "maximize"}


def search(config: DictConfig, launcher: Launcher, arguments: list[str]) -> None:
    """Run trials until the requested number is reached. Raises ConfigurationError, RunFailed and Interrupted."""
    Search(config, launcher, arguments).run()


class Search:
    """Runs a search. ``arguments``: the overrides that were typed, including the search space."""

    def __init__(self, config: DictConfig, launcher: Launcher, arguments: list[str]):
        logging.getLogger("alembic").setLevel(logging.WARNING)  # imported by Optuna; logs every step
        from hydra_plugins.hydra_optuna_sweeper._impl import create_params_from_overrides

        self._hydra, self._own, self._launcher = config.hydra, config.hydra.sweeper, launcher
        params = [f"{key}={value}" for key, value in (self._own.params or {}).items()]
        deleted: list[list[str]]
        self._space, fixed, *deleted = create_params_from_overrides([*params, *arguments])  # from 1.4 on by themselves
        self._fixed = [*(f"{name}={value}" for name, value in fixed.items()), *chain.from_iterable(deleted)]
        self._ledger = Ledger(Path(str(config.hydra.sweep.dir)))
        self._monitor, self._direction = "", str(self._own.direction)
        self._measured: dict[str, tuple[str, ScoresJson]] = {}  # by version, the first trial and what it measured
        self._trials: list[FrozenTrial] = []
        self._check()

    def run(self) -> None:
        """Run the trials, ``n_jobs`` at once, each batch by the results of those before it; print the best one."""
        for first in range(0, self._own.n_trials, self._own.n_jobs):
            batch = range(first, min(self._own.n_trials, first + self._own.n_jobs))
            study = self._study()
            asked = {number: self._ask(study, number) for number in batch}
            prunes = self._prunes and bool(self._column) and (self._column == LOSS or self._direction != "auto")
            judges = {number: Judge(trial, prunes=prunes) for number, trial in asked.items()}
            self._run(asked, Pruning(self._ledger, judges, by=self._column, sign=self._sign) if prunes else NoPruning())
            self._refuse_failures(batch)
            self._learn(batch)
            self._trials += [self._told(number, judge) for number, judge in judges.items()]
        self._conclude()

    def _run(self, asked: dict[int, "Trial"], pruning: NoPruning) -> None:
        """Run the rest of a batch: first the jobs that were begun before the search was stopped, or have failed."""
        planned = jobs(self._ledger)
        if begun := [entry for number in asked for entry in planned.get(number, [])]:
            finish(self._ledger, begun, pruning)
        new = {number: trial for number, trial in asked.items() if number not in planned}
        if new:
            overrides = [
                (*(f"{name}={value}" for name, value in trial.params.items()), *self._fixed) for trial in new.values()
            ]
            self._launcher.pruning = pruning  # type: ignore[attr-defined]
            self._launcher.launch(overrides, initial_job_idx=min(new))

    def _check(self) -> None:
        if not hasattr(self._launcher, "pruning"):
            rest = (
                ": hydra/sweeper=search reads the ledger, which only hydra/launcher=manyheads writes. Leave it out "
                "(hydra.launcher.jobs sets how many trials run at the same time), or use hydra/sweeper=optuna."
            )
            raise ConfigurationError.at("hydra/launcher", self._hydra.runtime.choices["hydra/launcher"], rest)
        if self._direction not in ("auto", *DIRECTIONS.values()):
            allowed = f"auto, {', '.join(DIRECTIONS.values())}"
            raise ConfigurationError.at(
                "hydra.sweeper.direction", self._direction, f" is not allowed. Allowed: {allowed}."
            )
        for key in ("n_trials", "n_jobs"):
            value = self._own[key]
            if not (type(value) is int and value > 0):
                raise not_allowed(f"hydra.sweeper.{key}", value, "an integer of at least 1")
        if not self._space:
            raise ConfigurationError(
                "a search has nothing to vary. Give it a space, such as optimizer.lr=interval(0.001,0.1)."
            )
        if str(self._own.sampler._target_).endswith("GridSampler"):
            rest = " is a sweep: list the values, such as optimizer.lr=0.1,0.01, without hydra/sweeper."
            raise ConfigurationError.at("hydra/sweeper/sampler", "grid", rest)
        if self._prunes and self._hydra.launcher.get("repeat", 1) > 1:
            message = "hydra.sweeper.pruner works with hydra.launcher.repeat=1 only. Leave one out."
            raise ConfigurationError(message, key="hydra.sweeper.pruner")

    @property
    def _prunes(self) -> bool:
        return not str(self._own.pruner._target_).endswith("NopPruner")

    def _study(self) -> "Study":
        """A study in memory with the trials of all batches before this one."""
        import optuna

        optuna.logging.set_verbosity(optuna.logging.WARNING)
        direction = None if self._direction == "auto" else self._direction  # not needed before there is an objective
        # Its name decides how Hyperband divides the trials.
        study = optuna.create_study(study_name="search", direction=direction, pruner=self._created("pruner"))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)  # as Optuna 2 calls them
            study.add_trials(self._trials)
        return study

    def _learn(self, batch: range) -> None:
        """Learn the monitored metric and its better direction from the first completed job.

        Raises ConfigurationError if there is a trial with an objective, and no direction for it, and for a trial whose
        values cannot be compared with those of others.
        """
        planned = jobs(self._ledger)
        first = [entries[0] for number in batch if (entries := planned.get(number))]
        completed = [entry for entry in first if entry.state == "completed"]
        for entry in completed:
            folder = RunFolder(self._ledger.sweep / entry.folder)
            if scores := (folder.read_result() or {}).get("scores"):
                self._monitor = self._monitor or scores["monitor"]
                if self._direction == "auto":
                    self._direction = DIRECTIONS.get(scores["direction"], "auto")
                self._refuse_unmeasured(entry, scores, folder)
        if completed and self._direction == "auto":
            rest = f": trial {completed[0].job} has no result that says whether larger is better. Set it to minimize or"
            raise ConfigurationError.at("hydra.sweeper.direction", "auto", f"{rest} maximize.")

    def _refuse_unmeasured(self, entry: Entry, scores: ScoresJson, folder: RunFolder) -> None:
        """Raises ConfigurationError for a completed trial without a value, or with one of another definition."""
        version = version_of(scores, self._monitor)
        self._measured.setdefault(version, (f"trial {entry.job}", scores))
        if difference := unlike(self._monitor, dict(self._measured.values())):
            raise ConfigurationError(f"{difference} Start a new search, in another folder.", key="hydra.sweep.dir")
        if entry.objective is None:
            rest = f" has no value in trial {entry.job}, so trials cannot be compared. Set it to another metric."
            raise ConfigurationError.at("checkpoint.monitor", self._monitor, rest)
        columns = [name for name, values in read_columns(folder.epochs).items() if any(map(math.isfinite, values))]
        if self._prunes and self._column not in (LOSS, *columns):
            allowed = ", ".join(("auto", LOSS, *columns))
            rest = f" has no value in trial {entry.job}. Allowed: {allowed}."
            raise ConfigurationError.at("hydra.sweeper.prune_by", self._own.prune_by, rest)

    @property
    def _column(self) -> str:
        return self._monitor if self._own.prune_by == "auto" else str(self._own.prune_by)

    @property
    def _sign(self) -> int:
        return -1 if self._column == LOSS and self._direction == "maximize" else 1

    def _ask(self, study: "Study", number: int) -> "Trial":
        """The trial already proposed under this number, or a new one, for which the number seeds the sampler."""
        seed = OmegaConf.select(self._own.sampler, "seed")
        more = {} if seed is None else {"seed": seed + number}
        study.sampler = self._created("sampler", **more)
        if number in (planned := jobs(self._ledger)):
            study.enqueue_trial(parameters_of(planned[number][0], self._space))
        return study.ask(self._space)

    def _created(self, part: str, **more: Any) -> Any:
        """The sampler or pruner that a section of ``hydra.sweeper`` describes. Raises ConfigurationError."""
        import optuna

        kind = {"sampler": optuna.samplers.BaseSampler, "pruner": optuna.pruners.BasePruner}[part]
        section = cast(dict[str, Any], OmegaConf.to_container(self._own[part], resolve=True))
        return instantiate_named("hydra.sweeper", {part: {**section, **more}}, kind)[part]

    def _told(self, number: int, judge: Judge) -> "FrozenTrial":
        """The finished trial, with the rows that it reported."""
        entries = jobs(self._ledger)[number]
        if self._column:
            judge.read(Reports(self._ledger, entries[0], by=self._column, sign=self._sign))
        return judge.told(entries)

    def _refuse_failures(self, batch: range) -> None:
        """Raises RunFailed if more trials have failed than allowed."""
        states = {job: {entry.state for entry in entries} for job, entries in jobs(self._ledger).items()}
        failed = [job for job in batch if not states.get(job, {"failed"}) <= {"completed", "pruned"}]
        if len(failed) / len(batch) > self._own.max_failure_rate:
            message = (
                f"{len(failed)} of {len(batch)} trials failed. Allowed: a fraction of "
                f"hydra.sweeper.max_failure_rate={self._own.max_failure_rate:g}."
            )
            raise RunFailed(Failure(Kind.PROGRAM_FAILED, message=message))

    def _conclude(self) -> None:
        """Print which trial was the best, and record it in the file of Hydra's Optuna sweeper."""
        study = self._study()
        completed = [trial for trial in study.trials if trial.value is not None and trial.state.name == "COMPLETE"]
        if not completed:
            return
        best = study.best_trial
        content = {"name": "optuna", "best_params": dict(best.params), "best_value": best.value}
        write_whole(self._ledger.sweep / "optimization_results.yaml", OmegaConf.to_yaml(OmegaConf.create(content)))
        chosen = " ".join(f"{name}={value}" for name, value in best.params.items())
        print(f"best of {len(study.trials)} trials: trial {best.number}, {self._monitor} {best.value:.6g}: {chosen}")
