"""The states of a sweep's jobs; each change is recorded in the ledger before anything else happens."""

import signal
import traceback
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from manyheads.launchers.companions import refuse_start
from manyheads.launchers.sweep import console
from manyheads.launchers.sweep.pruning import NoPruning
from manyheads.launchers.sweep.sweep_options import Options
from manyheads.runner.errors import BudgetSpent, ConfigurationError, Interrupted, Kind, RunFailed, Unavailable, report
from manyheads.runner.option.run_config import RunConfig
from manyheads.runner.run.ledger import EARLIER, Entry, Ledger
from manyheads.runner.run.run_folder import RunFolder


class JobProgress:
    """The waiting jobs, and the states of the others. ``interrupted``: what ended the sweep, if anything did."""

    def __init__(
        self,
        entries: list[Entry],
        ledger: Ledger,
        options: Options,
        *,
        apart: bool,
        pruning: NoPruning | None = None,
    ):
        self.pruning = pruning or NoPruning()
        self._entries = {(entry.job, entry.repeat): entry for entry in entries}
        self._waiting = list(entries)
        self._ledger, self._options = ledger, options
        self._titles = console.Titles(ledger.entries())
        self._apart = apart
        self.interrupted: Interrupted | None = None

    @property
    def sweep(self) -> Path:
        """The sweep's folder."""
        return self._ledger.sweep

    def stop(self, reason: Interrupted) -> None:
        """Start no further job."""
        self.interrupted = self.interrupted or reason
        self._waiting.clear()

    def may_start(self) -> bool:
        """Whether another job may start now; if a budget is spent, no further one is started."""
        try:
            refuse_start(self.sweep)
        except BudgetSpent as reason:
            self.stop(reason)
        return bool(self._waiting)

    def entries(self) -> list[Entry]:
        """All jobs, each in its latest state."""
        return list(self._entries.values())

    def next(self) -> Entry | None:
        """The job to start next; it keeps waiting until ``started``."""
        return self._waiting[0] if self._waiting else None

    def waiting(self) -> list[Entry]:
        """The jobs that have not started, in the order in which they will."""
        return list(self._waiting)

    def started(self, entry: Entry) -> None:
        """Record that a job runs, and print it."""
        self._waiting.remove(entry)
        self._note(entry.now("running"))
        if not self._apart:
            at = len(self._entries) - len(self._waiting)
            console.job_starts(self._titles.of(entry), at=at, of=len(self._entries))

    def ended(self, entry: Entry) -> None:
        """Record how a job ended, and what follows for the others."""
        entry = self.pruning.recorded(entry)
        self._note(entry)
        console.job_ends(entry, self._titles.of(entry), apart=self._apart)
        if entry.state == "interrupted":
            self.stop(interrupted_by(str(entry.reason)))
        if self.interrupted:
            return
        if entry.out_of_memory and self._options.on_oom == "split" and (half := split(entry, self._ledger.sweep)):
            self._note(half)
            self._waiting.insert(0, half)
        elif entry.state == "failed" and self._options.on_failure == "stop":
            self._waiting.clear()

    def _note(self, entry: Entry) -> None:
        self._ledger.write(entry)
        self._entries[entry.job, entry.repeat] = entry


Start = Callable[[Entry], object]


class EarlierRun(Exception):
    """Raised by the start of a job that an earlier run answers. ``folder``: that run's, as the ledger names it."""

    def __init__(self, folder: str, objective: float | None):
        super().__init__(folder, objective)
        self.folder, self.objective = folder, objective


def run_job(entry: Entry, start: Start) -> Entry:
    """Start a job and wait for it; the entry says how it ended. An exception is printed, and ends only this job."""
    try:
        value = start(entry)
    except EarlierRun as run:
        return replace(entry.now("completed", reason=EARLIER, objective=run.objective), folder=run.folder)
    except Unavailable as reason:
        return entry.now("skipped", reason=str(reason))
    except BudgetSpent as reason:
        return entry.now("interrupted", reason=str(reason))
    except Interrupted as reason:
        return entry.now("interrupted", reason=signal.Signals(reason.signum).name)
    except KeyboardInterrupt:
        return entry.now("interrupted", reason=signal.SIGINT.name)
    except SystemExit as end:
        if end.code in (None, 0):
            return entry.now("completed")
        return entry.now("failed", reason=f"the job called sys.exit({end.code!r})")
    except Exception as error:
        if isinstance(error, (ConfigurationError, RunFailed)):
            report(error)
        else:
            traceback.print_exc()
        return entry.now(
            "failed",
            reason=str(error) or type(error).__name__,
            out_of_memory=isinstance(error, RunFailed) and error.failure.kind is Kind.OUT_OF_MEMORY,
        )
    objective = float(value) if isinstance(value, (int, float)) else None
    return entry.now("completed", objective=objective)


def interrupted_by(reason: str) -> Interrupted:
    """What ended a job with this reason: a signal, which it names, or a budget that was spent."""
    return Interrupted(signal.Signals[reason]) if reason in signal.Signals.__members__ else BudgetSpent(reason)


def split(entry: Entry, sweep: Path) -> Entry | None:
    """The job with half the micro-batch and twice the accumulation, frozen in a new folder; None if impossible."""
    run = RunConfig.read(RunFolder(sweep / entry.folder))
    if run.batch_per_rank % 2:
        return None
    run = run.changed(trainer={"grad_accumulation": 2 * run.trainer.grad_accumulation})
    run = run.parallel.accumulating(run)
    times = 2 * entry.split
    folder = entry.folder.removesuffix(f"_split{entry.split}") + f"_split{times}"
    RunFolder(sweep / folder).write_config(run.written)
    return replace(entry.now("pending", reason=entry.reason), folder=folder, split=times)
