"""Starts of ranks count, or are refused; those that run are stopped once they and all others have spent the budget."""

import os
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from manyheads.launchers.companions import Accompanied
from manyheads.launchers.companions.budget.limits import SpendingLimits, shown
from manyheads.launchers.companions.budget.spending import OpenSession, SpendingLedger, SpentSession
from manyheads.launchers.companions.budget.totals import LimitUse, disk_of, left_in_words, spent_in_words, uses
from manyheads.runner.errors import BudgetSpent, ConfigurationError, warn
from manyheads.runner.machine import invocation
from manyheads.runner.machine.process import in_background
from manyheads.runner.run.data_files import no_link

BEAT = 0.2  # seconds between two looks, and between two times that a run writes what it has used
ALIVE = 2.0  # seconds since its last beat after which a run counts as ended
WALKING = 0.02  # the fraction of the time in which folders may be measured
SHORTEST = 0.002


class LiveSpending:
    """The sessions of a ledger, read again and again: a line whose ranks have ended only once."""

    def __init__(self, path: Path):
        self._descriptor = no_link(str(path), os.O_RDONLY)
        self._end = 0  # of the lines that have been read
        self._lines: dict[int, int] = {}  # of ranks that may run: offset and length
        self._sessions: dict[int, SpentSession] = {}
        self._changed: dict[int, float] = {}  # when that was noticed

    def close(self) -> None:
        """Close the file."""
        os.close(self._descriptor)

    def read(self) -> None:
        """Read what is new. Raises OSError."""
        size = os.fstat(self._descriptor).st_size
        while self._end < size and (new := os.pread(self._descriptor, size - self._end, self._end)):
            complete = new[: new.rfind(b"\n") + 1]
            if not complete:
                break
            for line in complete.splitlines(keepends=True):
                self._lines[self._end] = len(line)
                self._end += len(line)
        for offset, length in [*self._lines.items()]:
            self._take(offset, os.pread(self._descriptor, length, offset))

    def _take(self, offset: int, line: bytes) -> None:
        if (session := SpentSession.from_json(line)) is not None:
            if session != self._sessions.get(offset):
                self._sessions[offset], self._changed[offset] = session, time.monotonic()
            if session.is_running:
                return
        if offset not in self._sessions or not self._sessions[offset].is_running:  # not while it is being written
            del self._lines[offset]

    def sessions(self) -> list[SpentSession]:
        """All sessions, those that run with what they have used by now."""
        return [self._now(offset, session) for offset, session in self._sessions.items()]

    def _now(self, offset: int, session: SpentSession) -> SpentSession:
        since = time.monotonic() - self._changed[offset]
        return session.after(min(since, BEAT)) if session.is_running and since < ALIVE else session

    def devices(self) -> int:
        """On how many devices ranks run now."""
        now = time.monotonic()
        running = [offset for offset in self._lines if offset in self._sessions and now - self._changed[offset] < ALIVE]
        return sum(self._sessions[offset].devices for offset in running)


class SpendingWatch:
    """Stops a run once the budget is spent. ``run``: None for a program that cannot be stopped, only counted."""

    def __init__(self, budget: Path, limits: SpendingLimits, session: OpenSession, run: Accompanied | None):
        self._budget, self._limits, self._session, self._run = budget, limits, session, run
        self._state = _state(budget)
        self._disk, self._measured = 0.0, 0.0  # and when to measure it next

    def follow(self, ended: threading.Event) -> None:
        """Look until ``ended`` is set."""
        live = LiveSpending(SpendingLedger(self._budget).path)
        pause = SHORTEST
        try:
            while not ended.wait(pause):
                self._session.beat()
                if self._session.error is not None:
                    warn(str(SpendingLedger(self._budget).unusable(self._session.error)))
                with suppress(OSError):
                    pause = self._look(live)
        finally:
            live.close()

    def _look(self, live: LiveSpending) -> float:
        """Stop the run if the budget is spent; returns the seconds until the next look."""
        if self._run is None or self._run.reasons:
            return BEAT
        live.read()
        self._read_limits()
        sessions = live.sessions()
        if self._limits.disk is not None and time.monotonic() >= self._measured:
            began = time.monotonic()
            self._disk = disk_of(sessions)
            self._measured = time.monotonic() + max(1.0, (time.monotonic() - began) / WALKING)
        used = uses(self._limits, sessions, disk=self._disk)
        if spent := [use for use in used if use.is_spent and use.name != "runs"]:
            self._run.stop(BudgetSpent(stopped(self._budget, spent, used, trains=self._run.trains)))
            return BEAT
        rates = {"device_seconds": float(live.devices()), "until": 1.0}
        left = (use.left / rates[use.name] for use in used if rates.get(use.name))
        return max(SHORTEST, min([BEAT, *left]))

    def _read_limits(self) -> None:
        """Read limits that have been changed meanwhile; those that cannot be read change nothing."""
        if (state := _state(self._budget)) != self._state:
            self._state = state
            try:
                self._limits = SpendingLimits.read(self._budget)
            except ConfigurationError as error:
                warn(f"{error} Its earlier limits are kept.")


def _state(path: Path) -> tuple[int, int, int] | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_ino, status.st_size, status.st_mtime_ns


def stopped(budget: Path, spent: Iterable[LimitUse], used: Iterable[LimitUse], *, trains: bool) -> str:
    """Why a run was stopped, what is left, and how to go on."""
    why = "; ".join(map(spent_in_words, spent))
    how = "stopped" if trains else "ended without a result"
    return f"{shown(budget)}: {why}, so the run has {how}.{left_in_words(used)} Set it higher to go on."


def refuse_spent(budget: Path, folder: Path) -> None:
    """Raises BudgetSpent if nothing may start in ``folder`` now, and ConfigurationError."""
    _refuse(budget, SpendingLimits.read(budget), SpendingLedger(budget).sessions(), folder)


@contextmanager
def counted(budget: Path, folder: Path, *, kind: str, devices: int, run: Accompanied | None) -> Iterator[None]:
    """A context in which ranks in ``folder`` count, and ``run`` is stopped once the budget is spent.

    ``run``: None for a program that cannot be stopped. Raises BudgetSpent if it is spent already, also by others that
    have started at the same time, and ConfigurationError if the budget cannot be read, or what is used be written.
    """
    limits, ledger = SpendingLimits.read(budget), SpendingLedger(budget)
    with ledger.turn():
        _refuse(budget, limits, ledger.sessions(), folder)
        session = ledger.add(SpentSession.starting(folder, kind=kind, devices=devices))
    watch = SpendingWatch(budget, limits, session, run)
    try:
        with in_background(watch.follow, name="budget"):
            yield
    finally:
        session.end()
        if session.error is not None:
            warn(str(ledger.unusable(session.error)))


def _refuse(budget: Path, limits: SpendingLimits, sessions: list[SpentSession], folder: Path) -> None:
    used = uses(limits, sessions)
    is_begun = any(session.run == str(folder.absolute()) for session in sessions)
    spent = [use for use in used if use.is_spent and not (use.name == "runs" and is_begun)]
    if spent:
        raise BudgetSpent(refusal(budget, spent, used))


def refusal(budget: Path, spent: list[LimitUse], used: list[LimitUse]) -> str:
    """Why nothing was started, what is left, and how to go on."""
    why = "; ".join(map(spent_in_words, spent))
    shows = f"`{invocation.command('budget')}` shows by which runs"
    return f"{shown(budget)}: {why}. Nothing was started.{left_in_words(used)} Set it higher to go on; {shows}."
