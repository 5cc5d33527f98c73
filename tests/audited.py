"""An audit of a run of another part's tests, which may be without the wing that audits."""

from pathlib import Path
from typing import Any

import pytest


def audit(folder: str | Path) -> Any:
    """What ``manyheads audit --records`` finds in a run; in a tree without it, the rest of the test is skipped."""
    wing = pytest.importorskip("manyheads.runner.answers.audit.audit_run")
    return wing.audit(str(folder), reads_data=False)
