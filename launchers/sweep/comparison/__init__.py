"""The comparison of a sweep's jobs by the module in this folder, which nothing else names.

It has these functions: ``refresh(sweep, quiet=...)`` writes the files and prints the table; ``of_sweep(sweep)`` returns
the comparison as data.
"""

import importlib
import logging
import pkgutil
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from manyheads.runner.errors import ConfigurationError
from manyheads.runner.run.ledger import Ledger

if TYPE_CHECKING:  # few sweeps answer a program
    from manyheads.runner.records.compared_runs import ComparedRuns

log = logging.getLogger(__name__)


def refresh(sweep: Path, *, quiet: bool) -> None:
    """Update a sweep's comparison, and print its table unless ``quiet``. Never raises."""
    if (module := _module()) is None:
        log.warning("no comparison of %s: this installation has no manyheads.runner.report", sweep)
    else:
        module.refresh(sweep, quiet=quiet)


def _module() -> ModuleType | None:
    """The module that compares, which takes long to import; None if this installation has none."""
    names = [f"{__name__}.{module.name}" for module in pkgutil.iter_modules(__path__)]
    return importlib.import_module(names[0]) if names else None


def answer_of(sweep: Path) -> "ComparedRuns | None":
    """The comparison of a sweep that has printed it; None if this installation compares none.

    Raises ConfigurationError if the sweep has no job.
    """
    module = _module()
    return None if module is None else module.of_sweep(sweep)


def answer_if_any(sweep: Path) -> "ComparedRuns | None":
    """The comparison of a sweep, or None: a finished sweep must not fail because of its report."""
    try:
        return answer_of(sweep) if Ledger(sweep).exists() else None
    except (ConfigurationError, OSError):
        return None


def is_current(ledger: Path) -> bool:
    """Whether a sweep's comparison was written after the last change of a job's state."""
    try:
        changed = ledger.stat().st_mtime_ns
        return all(
            (ledger.parent / f"comparison.{form}").stat().st_mtime_ns >= changed for form in ("csv", "md", "html")
        )
    except OSError:
        return False
