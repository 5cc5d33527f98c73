"""The comparison of a sweep's jobs: the one door to ``report``, without which a sweep ends without a comparison."""

import logging
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from manyheads.runner.errors import ConfigurationError
from manyheads.runner.run.ledger import Ledger

if TYPE_CHECKING:  # comparing takes long to import, and few sweeps answer a program
    from manyheads.runner.report.answer import ComparedRuns

log = logging.getLogger(__name__)


def refresh(sweep: Path, *, quiet: bool) -> None:
    """Update a sweep's comparison, and print its table unless ``quiet``. Never raises."""
    if find_spec("manyheads.runner.report") is None:
        log.warning("no comparison of %s: this installation has no manyheads.runner.report", sweep)
        return
    from manyheads.runner.report import write_report

    write_report.refresh(sweep, quiet=quiet)


def answer_of(sweep: Path) -> "ComparedRuns":
    """The comparison of a sweep that has printed it. Raises ConfigurationError if there is none."""
    from manyheads.runner.report.answer import ComparedRuns

    return ComparedRuns.of_sweep(sweep)


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
