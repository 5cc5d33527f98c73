"""The comparison that a sweep ends in: a table, pictures, and a page. Cheap to import; drawing libraries come late."""

from manyheads.runner.report.write import NothingToCompare, is_current, refresh, report

__all__ = ["NothingToCompare", "is_current", "refresh", "report"]
