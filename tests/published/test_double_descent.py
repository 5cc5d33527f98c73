"""Deep double descent: the table of docs/published.md, and a whole run that repeats it."""

import sys

import pytest

from tests.conftest import execute
from tests.published.descent_picture import draw
from tests.published.figures import DOUBLE_DESCENT, Measured, results
from tests.published.page import table

HOURS = 3600
NEAR = 4.0  # points between two runs of one width
ROWS = {int(row["`model.width`"]): row for row in table("Deep double descent")}


def errors(row: dict[str, str]) -> Measured:
    mean, half = map(float, row["test errors here"].split(" ± "))
    return Measured(mean, half, int(row["seeds"]))


def test_the_page_has_published_errors_and_what_follows_from_ours():
    for width, row in ROWS.items():
        value = DOUBLE_DESCENT[width][1]
        value_in_page, verdict = row["notebook"].split()
        assert float(value_in_page) == pytest.approx(value, abs=0.05)
        assert verdict.strip("*") == errors(row).verdict(value)


@pytest.mark.tail
@pytest.mark.processes
@pytest.mark.timeout(2 * HOURS)
def test_a_whole_run_descends_twice(tmp_path):
    widths = ",".join(map(str, ROWS))
    sweep = ("experiment=mnist1d_double_descent", f"model.width={widths}")
    execute(sys.executable, "-m", "manyheads", "train", "-m", *sweep, cwd=tmp_path, timeout=2 * HOURS)
    by_order = sorted(results([tmp_path]), key=lambda result: int(result.folder.name))
    here = dict(zip(ROWS, by_order, strict=True))
    for width, result in here.items():
        assert abs(100 - result.metrics["val_acc1"] - errors(ROWS[width]).mean) < NEAR
    narrow, worst, wide = (100 - here[width].metrics["val_acc1"] for width in (16, 61, 300))
    assert narrow < worst > wide
    assert draw({width: [result] for width, result in here.items()}).startswith(b"\x89PNG")
