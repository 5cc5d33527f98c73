"""The long tail: wide products of combinations, of which `make test` runs those that differ and `make test-all` all."""

from collections.abc import Collection, Iterable
from typing import Any

import pytest


def tail(*values: Any, id: str | None = None) -> Any:
    """One set of parameters that `make test` leaves out. What it proves is proved there by another one."""
    return pytest.param(*values, marks=pytest.mark.tail, id=id)


def tailed(cases: Iterable[Any], *, always: Collection[Any]) -> list[Any]:
    """All ``cases``, of which `make test` runs those in ``always`` only."""
    cases = list(cases)
    assert set(always) <= set(cases), "a case to be run always is not among the cases"
    return [case if case in always else tail(*(case if isinstance(case, tuple) else (case,))) for case in cases]
