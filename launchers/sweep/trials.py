"""Optuna's trials out of a sweep's ledger and the tables of its jobs, which are the only memory that a search has."""

from collections.abc import Iterator, Mapping
from itertools import groupby
from statistics import fmean
from typing import TYPE_CHECKING, Any

from manyheads.runner.publish.tables import Tail
from manyheads.runner.run.ledger import Entry, Ledger
from manyheads.runner.run.run_folder import RunFolder

if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution
    from optuna.trial import FrozenTrial

LOSS = "loss"  # of steps.csv
ENDED = ("completed", "pruned", "failed", "skipped")


def trials(ledger: Ledger, space: Mapping[str, "BaseDistribution"], *, by: str, sign: int) -> list["FrozenTrial"]:
    """One for each job that has ended, in their order. ``by``, ``sign``: as for ``Reports``."""
    from optuna.trial import TrialState, create_trial

    states = {"completed": TrialState.COMPLETE, "pruned": TrialState.PRUNED}
    found = []
    for entries in jobs(ledger):
        worst = next((each for each in entries if each.state != "completed"), entries[0])
        values = [each.objective for each in entries if each.objective is not None]
        reported = dict(Reports(ledger, entries[0], by=by, sign=sign).new())
        state = states.get(worst.state, TrialState.FAIL)
        if state == TrialState.COMPLETE and not values:
            state = TrialState.FAIL
        value = fmean(values) if state == TrialState.COMPLETE else None
        if state == TrialState.PRUNED and reported:
            value = reported[max(reported)]
        parameters = parameters_of(entries[0], space)
        if len(parameters) == len(space):
            kept = dict(space)
            found.append(
                create_trial(
                    state=state, value=value, params=parameters, distributions=kept, intermediate_values=reported
                )
            )
    return found


def jobs(ledger: Ledger) -> Iterator[list[Entry]]:
    """The jobs with their repeats, of which each has ended."""
    if not ledger.exists():
        return
    ordered = sorted(ledger.entries(), key=lambda entry: (entry.job, entry.repeat))
    for _, group in groupby(ordered, key=lambda entry: entry.job):
        entries = list(group)
        if all(entry.state in ENDED for entry in entries):
            yield entries


def parameters_of(entry: Entry, space: Mapping[str, "BaseDistribution"]) -> dict[str, Any]:
    """What was proposed for a job, from the overrides that were made of it."""
    said = dict(override.partition("=")[::2] for override in entry.overrides)
    return {name: _value(said[name], kind) for name, kind in space.items() if name in said}


def _value(text: str, distribution: "BaseDistribution") -> Any:
    choices = getattr(distribution, "choices", None)
    if choices is not None:
        return next((choice for choice in choices if str(choice) == text), text)
    number = float(text)
    return int(number) if "Int" in type(distribution).__name__ else number


class Reports:
    """What a trial measures on its way. ``by``: a column of epochs.csv, or the training loss of steps.csv.

    ``sign``: -1 where a training loss stands for something to be maximized.
    """

    def __init__(self, ledger: Ledger, entry: Entry, *, by: str, sign: int):
        folder = RunFolder(ledger.sweep / entry.folder)
        self._table, self._by, self._sign = Tail(folder.steps if by == LOSS else folder.epochs), by, sign

    def new(self) -> Iterator[tuple[int, float]]:
        """Steps with values that have been added since the last call."""
        for row in self._table.rows():
            if self._by in row and "step" in row:
                yield int(row["step"]), self._sign * row[self._by]
