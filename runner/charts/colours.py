"""Short names, colours and dashes that distinguish lines and bars, on a light and on a dark page."""

from collections.abc import Iterable, Sequence
from itertools import cycle

from manyheads.runner.errors import printable
from manyheads.runner.records.keys import as_numbers

# Colours that colour-blind readers can distinguish (after Okabe and Ito), for options that declare none.
OTHERS = ("#cc79a7", "#56b4e9", "#662200", "#009e73", "#e69f00", "#0072b2", "#d55e00", "#56646e")
SCALE = ("#3f57c8", "#1f8fb0", "#2f9e62", "#b58a00", "#d9602b", "#b8325e")  # from a key's lowest to its highest value
DASHES = ("solid", "dash", "dot", "dashdot")


def short(text: str, most: int = 28) -> str:
    """The text for a picture: control characters are escaped, and what is beyond ``most`` characters is cut off."""
    text = printable(text)
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
        order = sorted(declared, key=dict(zip(declared, numbers, strict=True)).__getitem__)
        return {value: _mixed(order.index(value) / (len(order) - 1)) for value in declared}
    others = cycle(OTHERS)
    return {value: colour or next(others) for value, colour in declared.items()}


def _mixed(position: float) -> str:
    """The scale's colour at a position from 0 to 1."""
    scaled = position * (len(SCALE) - 1)
    first = min(int(scaled), len(SCALE) - 2)
    parts: Sequence[tuple[int, int]] = [
        (int(SCALE[first][at : at + 2], 16), int(SCALE[first + 1][at : at + 2], 16)) for at in (1, 3, 5)
    ]
    return "#" + "".join(f"{round(low + (high - low) * (scaled - first)):02x}" for low, high in parts)
