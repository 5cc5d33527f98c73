"""What is read of files that anybody may have written, and what is written of it into tables."""

import pytest

from manyheads.runner.run.data_files import no_formula


@pytest.mark.parametrize("text", ["=1", "+1+1", "-2+3", "@SUM(A1)", "\t=1", "\r=1", "\n=1", "＝1", "-x", "+", "-1e"])
def test_no_cell_is_a_formula(text):
    assert no_formula(text) == f"'{text}"


@pytest.mark.parametrize("value", ["-1", "+0.5", "-1e-3", "-.5", "a=b", "", None, -1, 0.5])
def test_numbers_and_other_texts_stay(value):
    assert no_formula(value) == value
