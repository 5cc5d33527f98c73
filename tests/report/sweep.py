"""A sweep made of copies of one run, and its comparison."""

from typing import Any

from manyheads.runner.records.run_set import gather
from manyheads.runner.report.comparison import Comparison, compare
from manyheads.runner.report.rows import ReportRow
from tests.sweeps import WrittenSweep


class Sweep(WrittenSweep):
    """With its comparison."""

    def compared(self, **options: Any) -> Comparison:
        return compare(gather([str(self.folder)]), **options)

    def rows(self, **options: Any) -> dict[str, ReportRow]:
        """The comparison's rows by number."""
        return {row.number: row for row in self.compared(**options).rows}
