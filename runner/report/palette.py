"""Names, colours and dashes that distinguish a comparison's rows, on a light and on a dark page."""

from collections import Counter

from manyheads.runner.charts.colours import colours, dashes, short
from manyheads.runner.records.keys import short_label
from manyheads.runner.report.comparison import Comparison
from manyheads.runner.report.rows import ReportRow


class Palette:
    """The colours and dashes of rows. ``colours``, ``dashes``: what they represent.

    Colours distinguish backends, or else the first swept key, by size if its values are numbers; dashes distinguish all
    other values, and repeat after four.
    """

    def __init__(self, comparison: Comparison):
        rows, swept = comparison.rows, comparison.swept
        self.key = "parallel" if "parallel" in swept else next(iter(swept), None)
        self.colours = colours((self.coloured(row), self._declared(row)) for row in rows)
        self.dashes = dashes(self.rest(row) for row in rows)
        counts = Counter(short(row.label) for row in rows)
        self.names = [
            name if counts[name := short(row.label)] == 1 else f"{short(row.label, 20)} · {row.number[-12:]}"
            for row in rows
        ]

    def coloured(self, row: ReportRow) -> str:
        """The meaning of a row's colour, such as «ddp» or «lr 0.01»."""
        if self.key is None:
            return str(row.first.run.config.get("parallel.name", ""))
        return short_label(row.values, *(key for key in row.values if key != self.key))

    def rest(self, row: ReportRow, *without: str) -> str:
        """A row's other swept values."""
        return short_label(row.values, self.key, *without)

    def of(self, row: ReportRow) -> tuple[str, str]:
        """A row's colour and dash."""
        return self.colours[self.coloured(row)], self.dashes[self.rest(row)]

    def _declared(self, row: ReportRow) -> str | None:
        """The colour declared by a row's backend, if colours represent backends."""
        return row.first.run.declared("parallel").color if self.key in ("parallel", None) else None
