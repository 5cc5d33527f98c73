"""A small table of houses, with numbers, categories, a boolean, dates, and holes."""

import csv
import random
from collections.abc import Sequence
from pathlib import Path

NAMES = ("house", "area", "rooms", "city", "garden", "sold", "price")
CITIES = {"Bern": 90, "Oslo": 60, "Rome": 20, "Lima": -30}


def houses(count: int = 200, *, seed: int = 0) -> list[list[str]]:
    """Rows of NAMES; every ninth lacks its area, every eleventh its city."""
    draw = random.Random(seed)
    rows = []
    for number in range(count):
        area, city, garden = draw.gauss(110, 35), draw.choice([*CITIES]), draw.random() < 0.4
        year, month, day = draw.randint(2010, 2023), draw.randint(1, 12), draw.randint(1, 28)
        price = 2.1 * area + CITIES[city] * (1.5 if garden else 1) + 4 * (year - 2010) + draw.gauss(0, 10) + 150
        rooms = max(1, round(area / 28))
        rows.append(
            [
                *(f"H{number:05}", "" if number % 9 == 0 else f"{area:.1f}", str(rooms)),
                *("" if number % 11 == 0 else city, "yes" if garden else "no", f"{year}-{month:02}-{day:02}"),
                f"{1000 * price:.0f}",
            ]
        )
    return rows


def save(path: Path, rows: Sequence[Sequence[str]], names: Sequence[str] = NAMES, *, delimiter: str = ",") -> Path:
    """Write a file of these rows."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "w", newline="") as file:
        writer = csv.writer(file, delimiter=delimiter)
        writer.writerow(names)
        writer.writerows(rows)
    return path
