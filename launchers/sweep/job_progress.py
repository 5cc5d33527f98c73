"""Which jobs of a sweep are waiting and which have run, recorded in the ledger before anything else happens."""

import signal
from pathlib import Path

from manyheads.launchers.sweep import console
from manyheads.launchers.sweep.pruning import NoPruning
from manyheads.launchers.sweep.states import split
from manyheads.launchers.sweep.sweep_options import Options
from manyheads.runner.run.ledger import Entry, Ledger


class JobProgress:
    """Which jobs are waiting, and the states of the others. ``interrupted``: the signal that ended the sweep, or 0."""

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
        self.interrupted = 0

    @property
    def sweep(self) -> Path:
        """The sweep's folder."""
        return self._ledger.sweep

    def stop(self, signum: int) -> None:
        """Called for a signal: no waiting job is started any more."""
        self.interrupted = self.interrupted or signum
        self._waiting.clear()

    def entries(self) -> list[Entry]:
        return list(self._entries.values())

    def next(self) -> Entry | None:
        """The job to start next; it keeps waiting until ``started``."""
        return self._waiting[0] if self._waiting else None

    def waiting(self) -> list[Entry]:
        return list(self._waiting)

    def started(self, entry: Entry) -> None:
        self._waiting.remove(entry)
        self._note(entry.now("running"))
        if not self._apart:
            at = len(self._entries) - len(self._waiting)
            console.job_starts(self._titles.of(entry), at=at, of=len(self._entries))

    def ended(self, entry: Entry) -> None:
        """Record how a job ended, and what follows for the others."""
        entry = self.pruning.settled(entry)
        self._note(entry)
        console.job_ends(entry, self._titles.of(entry), apart=self._apart)
        if entry.state == "interrupted":
            self.stop(signal.Signals[str(entry.reason)])
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
