"""Unpromising trials are ended by the parent, which reads their tables; ranks do not know about it."""

import signal
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from manyheads.launchers.sweep.trials import Reports
from manyheads.runner.run.heartbeat import Heartbeat
from manyheads.runner.run.ledger import Entry, Ledger
from manyheads.runner.run.run_folder import RunFolder


class NoPruning:
    """Every trial runs to its end."""

    watches = False  # whether there is anything to look at

    def watch(self, running: Sequence[Entry]) -> None:
        """Look at the jobs that run now; called every moment."""

    def settled(self, entry: Entry) -> Entry:
        """How a job has ended."""
        return entry


class Pruning(NoPruning):
    """``trials``: Optuna's, by job; ``by``, ``sign``: as for Reports."""

    watches = True

    def __init__(self, ledger: Ledger, trials: Mapping[int, Any], *, by: str, sign: int):
        self._ledger, self._trials, self._by, self._sign = ledger, trials, by, sign
        self._reports: dict[int, Reports] = {}
        self._reported: dict[int, int] = {}
        self._pruned: dict[int, str] = {}

    def watch(self, running: Sequence[Entry]) -> None:
        """Report new values to the pruner, and stop the trials that it gives up."""
        for entry in running:
            trial = self._trials.get(entry.job)
            if trial is None or entry.job in self._pruned:
                continue
            if entry.job not in self._reports:
                self._reports[entry.job] = Reports(self._ledger, entry, by=self._by, sign=self._sign)
            for step, value in self._reports[entry.job].new():
                if step <= self._reported.get(entry.job, -1):  # of a job that was resumed
                    continue
                trial.report(value, step)
                self._reported[entry.job] = step
                if trial.should_prune():
                    self._stop(entry, f"after step {step}: {self._by} {self._sign * value:.6g}")
                    break

    def settled(self, entry: Entry) -> Entry:
        """Return the final state of a job: one that was interrupted for it is pruned."""
        reason = self._pruned.get(entry.job)
        return entry if reason is None or entry.state != "interrupted" else entry.now("pruned", reason=reason)

    def _stop(self, entry: Entry, reason: str) -> None:
        """Ask the ranks to stop after the same step, with a checkpoint, as Ctrl-C does."""
        with suppress(FileNotFoundError, ValueError):  # it has just ended by itself
            Heartbeat(RunFolder(self._ledger.sweep / entry.folder).heartbeat).stop_signal = signal.SIGTERM
            self._pruned[entry.job] = reason
