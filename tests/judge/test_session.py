"""The error rate of a session."""

import pytest

from manyheads.runner.errors import ConfigurationError
from manyheads.runner.judge.session import spent


def test_all_questions_together_spend_alpha(tmp_path):
    path = tmp_path / "night" / "session.jsonl"
    rates = [spent(path, f"question {number}", 0.05)[1] for number in range(200)]
    assert rates[0] == 0.025
    assert sum(rates) == pytest.approx(0.05 * 200 / 201)


def test_a_question_asked_again_keeps_its_number(tmp_path):
    path = tmp_path / "session.jsonl"
    first = [spent(path, name, 0.05) for name in "abc"]
    assert [spent(path, name, 0.05) for name in "abc"] == first
    assert [number for number, _ in first] == [1, 2, 3]


def test_another_file_is_refused(tmp_path):
    path = tmp_path / "notes.txt"
    path.write_text("hello\n")
    with pytest.raises(ConfigurationError, match="is not the file of a session"):
        spent(path, "a", 0.05)
    assert path.read_text() == "hello\n"
