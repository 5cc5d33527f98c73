"""``manyheads budget``: what was spent of the budget that counts here, by which runs, and what is left."""

import argparse
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from manyheads.launchers.companions.budget.limits import FILE, NAMED, SpendingLimits, budget_file, shown
from manyheads.launchers.companions.budget.spending import SpendingLedger, SpentSession
from manyheads.launchers.companions.budget.totals import LimitUse, uses
from manyheads.runner.errors import ExitCode
from manyheads.runner.records.find import OUTPUTS
from manyheads.runner.run.answer import Answer

HELP = "show the limits of the budget, what was spent of them, and by which runs"
MOST_SHOWN = 10


@dataclass(frozen=True)
class SpentLimit:
    """A limit of the budget."""

    name: Annotated[str, "device_seconds, runs, disk in bytes, or until in seconds since 1970"]
    limit: float
    spent: Annotated[float, "for until, the time now"]
    left: float


@dataclass(frozen=True)
class RunSpending:
    """What a run has used."""

    run: Annotated[str, "its folder"]
    device_seconds: Annotated[float, "devices times seconds, of all its sessions"]
    devices: Annotated[int, "in its last session"]
    kind: Annotated[str, "gpu or core"]
    sessions: Annotated[int, "how often it was started"]


@dataclass(frozen=True)
class BudgetReport(Answer):
    """A budget, what was spent of it, and what is left."""

    file: Annotated[str | None, "the budget's file; null if there is none"]
    is_spent: Annotated[bool, "whether no run may start now"]
    limits: list[SpentLimit]
    runs: Annotated[list[RunSpending], "those that used most first"]

    @property
    def exit_code(self) -> ExitCode:
        return ExitCode.NO if self.is_spent else ExitCode.DONE

    def show(self) -> None:
        if self.file is None:
            print(f"no budget: {OUTPUTS / FILE} does not exist, and {NAMED} is not set")
            return
        from manyheads.runner.machine.console import print_columns  # slow, and not needed for JSON

        print(f"{shown(Path(self.file))}: {'spent' if self.is_spent else 'not spent'}")
        uses = [LimitUse(limit.name, limit.limit, limit.spent) for limit in self.limits]
        print_columns([("", "limit", "spent", "left"), *((use.name, *use.texts) for use in uses)])
        if not self.runs:
            return
        print()
        print_columns([("run", "device-seconds", "devices"), *map(_line, self.runs[:MOST_SHOWN])])
        if (rest := self.runs[MOST_SHOWN:]) != []:
            print(f"and {len(rest)} more, {sum(run.device_seconds for run in rest):,.1f} device-seconds")


def _line(run: RunSpending) -> tuple[str, str, str]:
    devices = f"{run.devices} {run.kind}{'s' * (run.devices != 1)}"
    return shown(Path(run.run)), f"{run.device_seconds:,.1f}", devices


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command has no arguments."""


def run(arguments: argparse.Namespace) -> BudgetReport:
    """Read the budget that counts for runs started here. Raises ConfigurationError."""
    if (budget := budget_file(Path.cwd() / OUTPUTS)) is None:
        return BudgetReport(None, False, [], [])
    limits, sessions = SpendingLimits.read(budget), SpendingLedger(budget).sessions()
    used = uses(limits, sessions)
    report = [SpentLimit(use.name, use.limit, use.spent, use.left) for use in used]
    return BudgetReport(str(budget), any(use.is_spent for use in used), report, _by_run(sessions))


def _by_run(sessions: list[SpentSession]) -> list[RunSpending]:
    grouped: dict[str, list[SpentSession]] = {}
    for session in sessions:
        grouped.setdefault(session.run, []).append(session)
    runs = (
        RunSpending(name, sum(one.device_seconds for one in some), some[-1].devices, some[-1].kind, len(some))
        for name, some in grouped.items()
    )
    return sorted(runs, key=lambda run: -run.device_seconds)
