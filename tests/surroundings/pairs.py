"""Covering arrays: as few combinations of values as have each pair of values of two axes.

Source: D. M. Cohen et al., "The AETG System: An Approach to Testing Based on Combinatorial Design", IEEE Transactions
on Software Engineering 23 (7), 1997; constraints as in section 4.2, where a refusal hides what is beside it.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import combinations, product

Value = tuple[str, str]  # an axis, and one of its values
Pair = frozenset[Value]
Cell = Mapping[str, str]


def covering(
    axes: Mapping[str, Sequence[str]], refused: Collection[frozenset[Value]], *, beside: Sequence[Cell] = ()
) -> list[dict[str, str]]:
    """Cells that, with those of ``beside``, have each pair; always the same for the same axes.

    ``refused``: values and pairs with which nothing runs; they hide the other pairs of their cell, which are therefore
    in another cell, too.
    """
    had = {pair for cell in beside for pair in shown(cell, refused)}
    missing, cells = dict.fromkeys(pair for pair in pairs(axes) if pair not in had), []
    while missing:
        cell = dict(next(iter(missing)))
        for axis in sorted(axes, key=lambda axis: -len(axes[axis])):
            if axis not in cell:
                options = ({**cell, axis: value} for value in axes[axis])
                cell = max(options, key=lambda option: len(missing.keys() & shown(option, refused)))
        cells.append({axis: cell[axis] for axis in axes})
        for pair in shown(cell, refused):
            missing.pop(pair, None)
    return cells


def pairs(axes: Mapping[str, Sequence[str]]) -> Iterator[Pair]:
    """Each value of each axis with each value of each other one."""
    for (first, ones), (second, others) in combinations(axes.items(), 2):
        for one, other in product(ones, others):
            yield frozenset({(first, one), (second, other)})


def shown(cell: Cell, refused: Collection[frozenset[Value]]) -> set[Pair]:
    """The pairs of a cell that are not hidden by a refusal of something else."""
    values = frozenset(cell.items())
    causes = [cause for cause in refused if cause <= values]
    return {pair for pair in map(frozenset, combinations(cell.items(), 2)) if all(cause <= pair for cause in causes)}
