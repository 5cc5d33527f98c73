"""A column of a comparison's tables."""

from collections.abc import Callable
from dataclasses import dataclass

from manyheads.runner.report.metric import NONE, number
from manyheads.runner.report.rows import Row

Value = str | float | int | None


@dataclass(frozen=True)
class Column:
    """``value``: the full value, for files and sorting; ``text``: as shown; ``about``: its meaning."""

    name: str
    title: str
    value: Callable[[Row], Value]
    text: Callable[[Row], str]
    about: str = ""
    is_number: bool = True


def words(name: str, title: str, value: Callable[[Row], str], about: str = "") -> Column:
    """A column of text."""
    return Column(name, title, value, lambda row: value(row) or NONE, about, is_number=False)


def numbers(
    name: str,
    title: str,
    value: Callable[[Row], float | None],
    about: str = "",
    text: Callable[[float], str] = number,
) -> Column:
    """A column of numbers, formatted by ``text``."""
    return Column(name, title, value, lambda row: NONE if (own := value(row)) is None else text(own), about)
