"""Unpromising trials are ended by the parent, which reads their tables; ranks do not know about it.

Whether a trial is pruned, and after which step, depends on its recorded rows alone, and not on when they are read: a
trial that trained on until it was stopped, or even to its end, is pruned after the same step.
"""

import signal
from collections.abc import Mapping, Sequence
from contextlib import suppress
from itertools import accumulate
from typing import TYPE_CHECKING, Any
from zlib import crc32

from manyheads.launchers.sweep.trials import Judge, Reports
from manyheads.runner.run.heartbeat import Heartbeat
from manyheads.runner.run.ledger import Entry, Ledger
from manyheads.runner.run.run_folder import RunFolder


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


if TYPE_CHECKING:
    from optuna.pruners import HyperbandPruner
    from optuna.study import Study
    from optuna.trial import FrozenTrial


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
