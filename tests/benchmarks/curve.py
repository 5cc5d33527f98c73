"""How a cost grows with a size."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rich.table import Table


@dataclass(frozen=True)
class Curve:
    """``values``: by what was measured, one for each of ``sizes``; NaN where it was not. Plain data, as JSON has it.

    ``size``, ``unit``: what sizes are of, and what the values are in.
    """

    name: str
    size: str
    unit: str
    sizes: list[int]
    values: dict[str, list[float]]

    def rows(self) -> Iterator[tuple[int, Sequence[float]]]:
        """Each size with one value for each of what was measured."""
        yield from zip(self.sizes, zip(*self.values.values(), strict=True), strict=True)

    def table(self) -> Table:
        table = Table(self.size, title=f"{self.name}, {self.unit}")
        for name in self.values:
            table.add_column(name, justify="right", overflow="fold")
        for size, values in self.rows():
            table.add_row(f"{size:,}", *(text(value) for value in values))
        return table


def text(value: float) -> str:
    """Three digits, or all before the point."""
    if math.isnan(value):
        return "–"
    return f"{value:,.0f}" if abs(value) >= 99.95 else f"{value:#.3g}"
