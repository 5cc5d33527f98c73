"""Plots curves in a terminal with braille characters: each has two by four dots, so small plots have enough points."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.style import Style
from rich.table import Table

DOTS = ((0x01, 0x02, 0x04, 0x40), (0x08, 0x10, 0x20, 0x80))  # bits of a character, by column and row
BRAILLE = 0x2800
SPLIT = 100  # width of the terminal from which two plots fit side by side
LABEL = 9  # width of the numbers on the left


@dataclass(frozen=True)
class Curve:
    """Points in the order of ``x``. ``color``: one that rich knows. Points that are not finite are omitted."""

    x: Sequence[float]
    y: Sequence[float]
    color: str = "cyan"


class Plot:
    """Several curves over the same axes, as wide as the terminal. ``height``: in lines, without title and axis."""

    def __init__(self, title: str, curves: Sequence[Curve], *, height: int = 8):
        self.title, self.height = title, height
        self.curves = [curve for curve in map(_finite, curves) if curve.x]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Segment]:
        yield Segment(self.title[: options.max_width] + "\n", Style(bold=True))
        if not self.curves:
            return
        width = max(4, options.max_width - LABEL - 1)
        low, high = _range([y for curve in self.curves for y in curve.y])
        first, last = _range([x for curve in self.curves for x in curve.x])
        cells: dict[tuple[int, int], tuple[int, str]] = {}
        for curve in self.curves:
            heights = _resampled(curve, first, last, 2 * width)
            _draw(cells, [None if y is None else _place(y, low, high, 4 * self.height) for y in heights], curve.color)
        for row in range(self.height):
            label = {0: high, self.height - 1: low}.get(row)
            yield Segment(f"{'' if label is None else f'{label:.4g}':>{LABEL}} ")
            for column in range(width):
                bits, color = cells.get((row, column), (0, ""))
                symbol = ("*" if bits else " ") if options.ascii_only else chr(BRAILLE + bits) if bits else " "
                yield Segment(symbol, Style(color=color) if color else None)
            yield Segment.line()
        ends = f"{first:,.0f}", f"{last:,.0f}"
        yield Segment(f"{'':{LABEL + 1}}{ends[0]}{ends[1]:>{max(1, width - len(ends[0]))}}\n")


class Beside:
    """Two plots side by side if there is room, else one above the other."""

    def __init__(self, *plots: Plot):
        self.plots = plots

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[RenderableType]:
        if options.max_width < SPLIT:
            yield from self.plots
            return
        grid = Table.grid("", "", expand=True, padding=(0, 2))
        for column in grid.columns:
            column.ratio = 1
        grid.add_row(*self.plots)
        yield grid


def _finite(curve: Curve) -> Curve:
    points = [(x, y) for x, y in zip(curve.x, curve.y, strict=False) if math.isfinite(x) and math.isfinite(y)]
    return Curve([x for x, _ in points], [y for _, y in points], curve.color)


def _range(values: Sequence[float]) -> tuple[float, float]:
    low, high = min(values), max(values)
    return (low, high) if high > low else (low - (abs(low) or 1) / 2, high + (abs(high) or 1) / 2)


def _place(value: float, low: float, high: float, count: int) -> int:
    """The row of a value, of ``count`` rows between low and high, counted from the top."""
    return round((high - value) / (high - low) * (count - 1))


def _resampled(curve: Curve, first: float, last: float, count: int) -> list[float | None]:
    """The mean of the points in each of ``count`` columns; columns without points are interpolated linearly."""
    sums: dict[int, tuple[float, int]] = {}
    for x, y in zip(curve.x, curve.y, strict=True):
        column = round((x - first) / (last - first) * (count - 1))
        total, number = sums.get(column, (0.0, 0))
        sums[column] = (total + y, number + 1)
    means = {column: total / number for column, (total, number) in sums.items()}
    heights: list[float | None] = [means.get(column) for column in range(count)]
    for left, right in pairwise(sorted(means)):
        for column in range(left + 1, right):
            share = (column - left) / (right - left)
            heights[column] = means[left] * (1 - share) + means[right] * share
    return heights


def _draw(cells: dict[tuple[int, int], tuple[int, str]], heights: list[int | None], color: str) -> None:
    """Set the dots of a curve, so many in each column that it has no gaps. A cell has the color of its last curve."""
    before: int | None = None
    for column, height in enumerate(heights):
        if height is None:
            before = None
            continue
        start = height if before is None else before + (height > before) - (height < before)
        for row in range(min(start, height), max(start, height) + 1):
            cell = (row // 4, column // 2)
            cells[cell] = (cells.get(cell, (0, ""))[0] | DOTS[column % 2][row % 4], color)
        before = height
