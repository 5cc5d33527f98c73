"""A start of ranks is refused, or counts from then on."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from manyheads.launchers.companions import Accompanied
from manyheads.launchers.companions.budget.limits import SpendingLimits, shown
from manyheads.launchers.companions.budget.spending import SpendingLedger, SpentSession
from manyheads.launchers.companions.budget.totals import LimitUse, left_in_words, spent_in_words, uses
from manyheads.launchers.companions.budget.watching import SpendingWatch
from manyheads.runner.errors import BudgetSpent, warn
from manyheads.runner.machine import invocation
from manyheads.runner.machine.process import in_background


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
