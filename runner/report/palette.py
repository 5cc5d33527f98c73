"""Names, colours and dashes that distinguish a comparison's rows, on a light and on a dark page."""

from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import cycle

from manyheads.runner.report.comparison import Comparison
from manyheads.runner.report.keys import as_numbers, short_label
from manyheads.runner.report.rows import ReportRow

# Colours that colour-blind readers can distinguish (after Okabe and Ito), for options that declare none.
OTHERS = ("#cc79a7", "#56b4e9", "#662200", "#009e73", "#e69f00", "#0072b2", "#d55e00", "#56646e")
SCALE = ("#3f57c8", "#1f8fb0", "#2f9e62", "#b58a00", "#d9602b", "#b8325e")  # from a key's lowest to its highest value
DASHES = ("solid", "dash", "dot", "dashdot")


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


def short(text: str, most: int = 28) -> str:
    """The text, truncated if it is longer than ``most`` characters."""
    return text if len(text) <= most else f"{text[: most - 1]}…"


def dashes(values: Iterable[str]) -> dict[str, str]:
    """A dash for each value."""
    return dict(zip(dict.fromkeys(values), cycle(DASHES), strict=False))


def colours(values: Iterable[tuple[str, str | None]]) -> dict[str, str]:
    """A colour for each value: its declared one, one of a scale if all are numbers, or one of the palette."""
    declared: dict[str, str | None] = {}
    for value, colour in values:
        declared[value] = declared.get(value) or colour
    numbers = as_numbers([value.rpartition(" ")[2] for value in declared])
    if numbers and len(declared) > 2 and not any(declared.values()):
        by_value = dict(zip(declared, numbers, strict=True))
        order = sorted(declared, key=by_value.__getitem__)
        return {value: _mixed(order.index(value) / (len(order) - 1)) for value in declared}
    others = cycle(OTHERS)
    return {value: colour or next(others) for value, colour in declared.items()}


def _mixed(position: float) -> str:
    """The scale's colour at a position from 0 to 1."""
    place = position * (len(SCALE) - 1)
    first = min(int(place), len(SCALE) - 2)
    parts: Sequence[tuple[int, int]] = [
        (int(SCALE[first][at : at + 2], 16), int(SCALE[first + 1][at : at + 2], 16)) for at in (1, 3, 5)
    ]
    return "#" + "".join(f"{round(low + (high - low) * (place - first)):02x}" for low, high in parts)
