"""Compares a sweep's jobs by ``report``."""

from manyheads.runner.report.answer import of_sweep
from manyheads.runner.report.write_report import refresh

__all__ = ["of_sweep", "refresh"]
