"""How readers see colours."""

import math
import operator
from collections.abc import Iterable, Iterator
from itertools import combinations

# How red, green and blue light is seen without one kind of cone: Machado, Oliveira and Fernandes 2009, severity 1.
SIGHT = {
    "all cones": ((1, 0, 0), (0, 1, 0), (0, 0, 1)),
    "protanopia": ((0.152, 1.053, -0.205), (0.115, 0.786, 0.099), (-0.004, -0.048, 1.052)),
    "deuteranopia": ((0.367, 0.861, -0.228), (0.280, 0.673, 0.047), (-0.012, 0.043, 0.969)),
    "tritanopia": ((1.256, -0.077, -0.179), (-0.078, 0.931, 0.148), (0.005, 0.691, 0.304)),
}
APART = 12  # distance in CIELAB; 2 can just be seen side by side


def light(colour: str) -> list[float]:
    """The linear light of a colour such as #0072b2."""
    digits = colour[1:] if len(colour) == 7 else "".join(2 * each for each in colour[1:])
    values = [int(digits[at : at + 2], 16) / 255 for at in (0, 2, 4)]
    return [value / 12.92 if value <= 0.04045 else ((value + 0.055) / 1.055) ** 2.4 for value in values]


def contrast(one: str, other: str) -> float:
    """The ratio that WCAG defines: at least 4.5 for text."""
    weights = (0.2126, 0.7152, 0.0722)
    low, high = sorted(sum(map(operator.mul, weights, light(each))) for each in (one, other))
    return (high + 0.05) / (low + 0.05)


def seen(colour: str, sight: str) -> list[float]:
    """A colour in CIELAB as it is seen."""
    red, green, blue = (
        min(max(sum(w * v for w, v in zip(row, light(colour), strict=True)), 0), 1) for row in SIGHT[sight]
    )
    x = (0.4124 * red + 0.3576 * green + 0.1805 * blue) / 0.9505
    y = 0.2126 * red + 0.7152 * green + 0.0722 * blue
    z = (0.0193 * red + 0.1192 * green + 0.9505 * blue) / 1.089
    x, y, z = (each ** (1 / 3) if each > 0.008856 else 7.787 * each + 16 / 116 for each in (x, y, z))
    return [116 * y - 16, 500 * (x - y), 200 * (y - z)]


def alike(colours: Iterable[str]) -> Iterator[tuple[str, str, str]]:
    """Pairs that some readers cannot tell apart."""
    for one, other in combinations(colours, 2):
        yield from ((one, other, sight) for sight in SIGHT if math.dist(seen(one, sight), seen(other, sight)) < APART)
