"""Counts what runs use of the user's budget; once it is spent, refuses those that would start, and stops the others."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from manyheads.launchers.companions import Accompanied, Span
from manyheads.launchers.companions.budget.limits import NAMED, budget_file
from manyheads.launchers.environment import variables_set
from manyheads.runner.machine import hardware
from manyheads.runner.option.run_config import RunConfig

SPAN = Span.RANKS


def refuse_start(folder: Path) -> None:
    """Raises BudgetSpent if the budget of a run in ``folder`` is spent, and ConfigurationError if it cannot be read."""
    if (budget := budget_file(folder)) is not None:
        from manyheads.launchers.companions.budget.watching import refuse_spent  # few runs have a budget

        refuse_spent(budget, folder)


@contextmanager
def accompany(run: Accompanied) -> Iterator[None]:
    """A context in which the ranks count; ``run`` is stopped once the budget is spent. Raises as ``refuse_start``."""
    kind = "gpu" if run.run.on_gpus else "core"
    with _counted(run.folder.path, kind, devices_of(run.run), run):
        yield


@contextmanager
def accompany_program(folder: Path) -> Iterator[None]:
    """A context in which a program counts for all devices that it may use. Raises as ``refuse_start``.

    It is not stopped; manyheads within it doesn't count a second time.
    """
    gpus = len(hardware.gpu_ids())
    with _counted(folder, "gpu" if gpus else "core", gpus or hardware.cpu_cores(), None), variables_set({NAMED: ""}):
        yield


def devices_of(run: RunConfig) -> int:
    """How many devices the ranks occupy, on all machines: GPUs, or without them cores, as many as they have threads."""
    launcher = run.launcher
    return max(run.gpus_here, launcher.ranks) if run.on_gpus else launcher.ranks * launcher.threads_per_rank


@contextmanager
def _counted(folder: Path, kind: str, devices: int, run: Accompanied | None) -> Iterator[None]:
    if (budget := budget_file(folder)) is None:
        yield
        return
    from manyheads.launchers.companions.budget.watching import counted  # few runs have a budget

    with counted(budget, folder, kind=kind, devices=devices, run=run):
        yield
