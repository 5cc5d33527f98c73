"""Optuna's trials, restored from a sweep's ledger and the tables of its jobs, the only memory of a search.

Unpromising ones are ended by the parent; ranks do not know about it.
Whether a trial is pruned, and after which step, depends on its recorded rows alone, and not on when they are read: a
trial that trained on until it was stopped, or even to its end, is pruned after the same step.
"""

import signal
from collections.abc import Mapping, Sequence
from contextlib import suppress
from copy import deepcopy
from itertools import accumulate
from statistics import fmean
from typing import TYPE_CHECKING, Any, NamedTuple
from zlib import crc32

from manyheads.runner.errors import ConfigurationError
from manyheads.runner.run.heartbeat import Heartbeat
from manyheads.runner.run.ledger import Entry, Ledger
from manyheads.runner.run.run_folder import RunFolder
from manyheads.runner.run.tables.tail import Tail

if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution
    from optuna.pruners import HyperbandPruner
    from optuna.study import Study
    from optuna.trial import FrozenTrial, Trial

LOSS = "loss"  # of steps.csv


def jobs(ledger: Ledger) -> dict[int, list[Entry]]:
    """All jobs by number, each with its repeats in order."""
    by_job: dict[int, list[Entry]] = {}
    for entry in sorted(ledger.entries(), key=lambda entry: (entry.job, entry.repeat)) if ledger.exists() else ():
        by_job.setdefault(entry.job, []).append(entry)
    return by_job


def parameters_of(entry: Entry, space: Mapping[str, "BaseDistribution"]) -> dict[str, Any]:
    """The proposed parameters of a job, read from its overrides."""
    typed = dict(override.partition("=")[::2] for override in entry.overrides)
    return {name: _value(typed[name], kind) for name, kind in space.items() if name in typed}


def _value(text: str, distribution: "BaseDistribution") -> Any:
    choices = getattr(distribution, "choices", None)
    if choices is not None:
        return next((choice for choice in choices if str(choice) == text), text)
    number = float(text)
    return int(number) if "Int" in type(distribution).__name__ else number


class TrialRow(NamedTuple):
    """A trial's measurement after ``step``. ``is_last``: no update can follow, so pruning would save nothing."""

    step: int
    value: float
    is_last: bool


class Reports:
    """Values that a trial reports while it runs. ``by``: a column of epochs.csv, or the training loss of steps.csv.

    ``sign``: -1 if the training loss stands in for a metric to be maximized.
    """

    def __init__(self, ledger: Ledger, entry: Entry, *, by: str, sign: int):
        folder = RunFolder(ledger.sweep / entry.folder)
        self._table, self._by, self._sign = Tail(folder.steps if by == LOSS else folder.epochs), by, sign
        self._ends = _ends(folder) if by != LOSS else {}

    def new(self) -> list[TrialRow]:
        """The rows that have been added since the last call."""
        rows = [row for row in self._table.rows() if self._by in row and "step" in row]
        last = [any(row.get(key) == end for key, end in self._ends.items()) for row in rows]
        return [TrialRow(int(r["step"]), self._sign * r[self._by], end) for r, end in zip(rows, last, strict=True)]


def _ends(folder: RunFolder) -> dict[str, int | None]:
    """The epoch and step in the last row of a trial that runs to its end."""
    try:
        trainer = folder.read_config().get("trainer") or {}
    except (ConfigurationError, OSError):  # it was refused, and has no tables
        return {}
    return {"epoch": trainer.get("epochs"), "step": trainer.get("max_steps")}


class Judge:
    """Reports one trial's rows to Optuna's pruner, in a separate study, unaffected by trials that run at the same time.

    ``prunes``: whether the trial may be pruned. ``end``: the row after which it was, or None.
    """

    def __init__(self, trial: "Trial", *, prunes: bool):
        self._trial, self._prunes = deepcopy(trial), prunes
        self._last = -1
        self.end: TrialRow | None = None

    def read(self, reports: Reports) -> None:
        """Report the new rows, each once, up to the one after which the trial is pruned."""
        for row in reports.new():
            if self.end is not None or row.step <= self._last:  # repeated by a resumed job
                continue
            self._trial.report(row.value, row.step)
            self._last = row.step
            if self._prunes and self._trial.should_prune() and not row.is_last:
                self.end = row

    def told(self, entries: list[Entry]) -> "FrozenTrial":
        """The trial as it ended. ``entries``: its job's repeats."""
        from optuna.trial import TrialState

        values = [entry.objective for entry in entries if entry.objective is not None]
        states = {entry.state for entry in entries}
        study = self._trial.study
        if self.end is not None or "pruned" in states:
            study.tell(self._trial, state=TrialState.PRUNED)
        elif states == {"completed"} and values:
            study.tell(self._trial, fmean(values))
        else:
            study.tell(self._trial, state=TrialState.FAIL)
        return study.trials[self._trial.number]


class NoPruning:
    """Every trial runs to its end."""

    watches = False  # whether running jobs must be watched

    def watch(self, running: Sequence[Entry]) -> None:
        """Examine the jobs that are running; called several times a second."""

    def recorded(self, entry: Entry) -> Entry:
        """The final state of a job that has ended."""
        return entry


class Pruning(NoPruning):
    """Prunes trials by the rows of their tables. ``judges``: by job; ``by``, ``sign``: as for ``Reports``."""

    watches = True

    def __init__(self, ledger: Ledger, judges: Mapping[int, Judge], *, by: str, sign: int):
        self._ledger, self._judges, self._by, self._sign = ledger, judges, by, sign
        self._reports: dict[int, Reports] = {}
        self._asked = set[int]()  # jobs that were asked to stop

    def watch(self, running: Sequence[Entry]) -> None:
        """Stop the trials that the pruner gives up."""
        for entry in running:
            if entry.job not in self._asked and self._reason(entry) is not None:
                self._stop(entry)

    def recorded(self, entry: Entry) -> Entry:
        """Return the final state of a job: one that its rows condemn is pruned, however it ended, without a result."""
        reason = self._reason(entry)
        return entry if reason is None else entry.now("pruned", reason=reason, objective=None)

    def _reason(self, entry: Entry) -> str | None:
        """Why the job is pruned; None if it is not, so far."""
        if (judge := self._judges.get(entry.job)) is None:
            return None
        if entry.job not in self._reports:
            self._reports[entry.job] = Reports(self._ledger, entry, by=self._by, sign=self._sign)
        judge.read(self._reports[entry.job])
        if judge.end is None:
            return None
        return f"after step {judge.end.step}: {self._by} {self._sign * judge.end.value:.6g}"

    def _stop(self, entry: Entry) -> None:
        """Ask the ranks to stop after the same step, with a checkpoint, as Ctrl-C does."""
        with suppress(FileNotFoundError, ValueError):  # it has just ended by itself
            Heartbeat(RunFolder(self._ledger.sweep / entry.folder).heartbeat).stop_signal = signal.SIGTERM
            self._asked.add(entry.job)


def hyperband(**settings: Any) -> "HyperbandPruner":
    """Optuna's pruner with its own ``settings``, in which study name and trial number decide a trial's bracket.

    Optuna 2 divides trials by ``hash()``, which differs between processes, and so before and after a resume. As in
    Optuna 3, a CRC decides here.
    """
    from optuna.pruners import HyperbandPruner  # imports scikit-learn

    class Hyperband(HyperbandPruner):
        def _get_bracket_id(self, study: "Study", trial: "FrozenTrial") -> int:
            ends = [*accumulate(self._trial_allocation_budgets)]
            drawn = crc32(f"{study.study_name}_{trial.number}".encode()) % ends[-1] if ends else 0
            return next((bracket for bracket, end in enumerate(ends) if drawn < end), 0)

    return Hyperband(**settings)
