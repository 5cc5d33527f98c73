"""Rows of benchmarks: each fits a terminal, and is marked only above its limit; their loops train the same."""

import pytest

from tests.benchmarks import sharing
from tests.benchmarks.bars import BARS, lines
from tests.benchmarks.measure import Comparison

pytestmark = pytest.mark.ci


@pytest.mark.parametrize(("times", "mark"), [(0.01, " "), (9.0, "*")])
def test_rows(times, mark):
    for bars in BARS.values():
        for bar in bars:
            seconds = {bar.against: [1.0] * 20, bar.candidate: [times] * 20}
            (line,) = lines(Comparison("", bar.against, seconds), [bar])
            assert len(line) <= 120
            assert line[0] == (" " if bar.limit > 9 else mark)


@pytest.mark.tail
@pytest.mark.parametrize("strategy", sharing.ROWS)
def test_sharing(strategy):
    comparison = sharing.of(strategy)(rounds=1)
    assert all(len(seconds) == 1 for seconds in comparison.seconds.values())
