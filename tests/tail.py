"""The long tail: wide products of combinations, of which `make test-all` alone runs all."""

from collections.abc import Collection, Iterable
from itertools import product
from typing import Any

import pytest


def tail(*values: Any, id: str | None = None) -> Any:
    """One set of parameters that `make test-ci` leaves out. What it proves is proved there by another one."""
    return pytest.param(*values, marks=pytest.mark.tail, id=id)


def tailed(cases: Iterable[Any], *, always: Collection[Any]) -> list[Any]:
    """All ``cases``, of which `make test-ci` runs those in ``always`` only."""
    cases = list(cases)
    assert set(always) <= set(cases), "a case to be run always is not among the cases"
    return [case if case in always else tail(*(case if isinstance(case, tuple) else (case,))) for case in cases]


def each_once(*axes: Iterable[Any]) -> list[Any]:
    """The product of the axes, of which `make test-ci` runs as few as have each value of each axis."""
    values = [list(axis) for axis in axes]
    always = [tuple(axis[number % len(axis)] for axis in values) for number in range(max(map(len, values)))]
    return tailed(product(*values), always=always)
