"""Curves in a terminal."""

import io
import math

import pytest
from rich.cells import cell_len
from rich.console import Console

from manyheads.runner.commands.watch.terminal_curves import Beside, Curve, Plot


def drawn(renderable: object, width: int = 40, encoding: str = "utf-8") -> list[str]:
    file = io.TextIOWrapper(io.BytesIO(), encoding=encoding)
    Console(file=file, width=width, color_system=None).print(renderable)
    file.seek(0)
    return file.read().splitlines()


def test_a_falling_line_falls():
    title, *rows, axis = drawn(Plot("loss", [Curve([1, 2, 3], [3.0, 2.0, 1.0])], height=4))
    assert title == "loss"
    assert [row[:10].strip() for row in rows] == ["3", "", "", "1"]
    first = [next(index for index, each in enumerate(row[10:]) if each != " ") for row in rows]
    assert first == sorted(first)
    assert axis.split() == ["1", "3"]


@pytest.mark.parametrize("curve", [Curve([], []), Curve([1.0], [math.nan])])
def test_without_points_there_is_only_a_title(curve):
    assert drawn(Plot("loss", [curve])) == ["loss"]


@pytest.mark.parametrize("values", [[1.0], [0.0, 0.0], [1.0, math.inf, 2.0], [1e-30, -1e30], [5.0] * 5000])
@pytest.mark.parametrize("width", [12, 40, 120])
def test_any_numbers_fit_into_any_width(values, width):
    lines = drawn(Plot("a title that is long", [Curve(range(len(values)), values)]), width)
    assert len(lines) == 10
    assert all(cell_len(line) <= width for line in lines)


def test_a_terminal_without_braille_gets_stars():
    assert "*" in "".join(drawn(Plot("loss", [Curve([1, 2], [1, 2])]), encoding="ascii"))


def test_two_are_beside_each_other_where_there_is_room():
    plots = Beside(*(Plot(name, [Curve([1, 2], [1, 2])]) for name in ("first", "second")))
    assert "first" in drawn(plots, 120)[0]
    assert "second" in drawn(plots, 120)[0]
    assert "second" not in drawn(plots, 80)[0]
