"""What is read of files that anybody may have written, and what is written of it into tables."""

import pytest

from manyheads.runner.run.data_files import cell


@pytest.mark.parametrize("text", ["=1", "+1+1", "-2+3", "@SUM(A1)", "\t=1", "\n=1", "＝1", "-x", "+", "-1e"])
def test_no_cell_is_a_formula(text):
    assert cell(text) == f"'{text}"


@pytest.mark.parametrize("value", ["-1", "+0.5", "-1e-3", "-.5", "a=b", "", None, -1, 0.5])
def test_numbers_and_other_texts_stay(value):
    assert cell(value) == value


@pytest.mark.parametrize(
    ("text", "written"),
    [("\r=1", "\\r=1"), ("=\x1b[2J", "'=\\x1b[2J"), ("a\u202eb", "a\\u202eb"), ("\udcff\x07.png", "\udcff\\x07.png")],
)
def test_control_characters_are_written_out(text, written):
    assert cell(text) == written
