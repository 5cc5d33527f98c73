"""The table of docs/published.md: its verdicts follow from its numbers, which a whole run repeats."""

import re
import sys

import pytest

from tests.conftest import execute
from tests.published.figures import TABLE, Measured, results
from tests.published.page import table

CELL = re.compile(r"([\d.]+) (reproduced|\*\*differs\*\*)")
HOURS = 3600
SEEDS = {"linear": 10, "mlp": 10, "cnn": 10, "gru": 3}  # of a whole run here: a GRU trains for minutes
ROWS = {(row["`model.kind`"].strip("`"), row["positions"]): row for row in table("The table")}


def measured(row: dict[str, str]) -> Measured:
    mean, half = map(float, row["here"].split(" ± "))
    return Measured(mean, half, int(row["seeds"]))


@pytest.mark.parametrize("case", TABLE, ids=" ".join)
def test_the_page_has_each_published_value_and_what_follows_from_ours(case):
    for column, value in zip(("paper", "notebook"), TABLE[case], strict=True):
        cell = CELL.fullmatch(ROWS[case][column])
        assert cell, f"{ROWS[case][column]} is not a value with a verdict"
        assert float(cell[1]) == value
        assert cell[2].strip("*") == measured(ROWS[case]).verdict(value)


def test_an_interval_is_that_of_students_t():
    one = Measured.of([90.0, 92.0, 94.0])
    assert one.mean == 92.0
    assert one.half == pytest.approx(4.303 * 2 / 3**0.5, rel=1e-3)
    assert one.verdict(96.9) == "reproduced"
    assert one.verdict(97.0) == "differs"


def test_a_value_within_two_points_is_reproduced_however_narrow_the_interval():
    assert Measured(92.0, 0.1, 10).verdict(94.0) == "reproduced"
    assert Measured(92.0, 0.1, 10).verdict(94.1) == "differs"
    assert Measured.of([92.0]).verdict(94.1) == "differs"


@pytest.mark.tail
@pytest.mark.processes
@pytest.mark.timeout(3 * HOURS)
@pytest.mark.parametrize("case", TABLE, ids=" ".join)
def test_a_whole_run_measures_what_the_page_says(case, tmp_path):
    kind, positions = case
    seeds = ",".join(str(seed) for seed in range(1, SEEDS[kind] + 1))
    shuffled = str(positions == "shuffled").lower()
    sweep = ("experiment=mnist1d_table", f"model.kind={kind}", f"data.shuffle_positions={shuffled}", f"seed={seeds}")
    execute(sys.executable, "-m", "manyheads", "train", "-m", *sweep, cwd=tmp_path, timeout=3 * HOURS)
    here = Measured.of([result.metrics["val_acc1"] for result in results([tmp_path])])
    there = measured(ROWS[case])
    assert here.runs == SEEDS[kind]
    assert abs(here.mean - there.mean) <= here.half + there.half
