"""The error rate of a session."""

import json

import numpy as np
import pytest

from manyheads.runner.answers.judge.session import JudgementSession
from manyheads.runner.errors import ConfigurationError


def test_all_judgements_together_spend_alpha(tmp_path):
    session = JudgementSession(tmp_path / "night" / "session.jsonl")
    rates = [session.ask(f"draw {number}", "seed=2", 0.05)[1] for number in range(200)]
    assert rates[0] == 0.025
    assert sum(rates) == pytest.approx(0.05 * 200 / 201)


def test_a_judgement_that_is_continued_keeps_its_number_and_one_that_starts_over_does_not(tmp_path):
    session = JudgementSession(tmp_path / "session.jsonl")
    first = [session.ask(draw, "same", 0.05) for draw in "abc"]
    session.answer("b", "undecided")
    assert [session.ask(draw, "same", 0.05) for draw in "abc"] == first
    assert session.ask("d", "same", 0.05)[0] == 4


def test_the_number_of_a_withdrawn_judgement_is_free_again(tmp_path):
    session = JudgementSession(tmp_path / "session.jsonl")
    first = [session.ask(draw, "same", 0.05) for draw in "abc"]
    session.withdraw("c")
    session.withdraw("c")
    assert session.ask("d", "same", 0.05) == first[2]
    session.withdraw("a")
    rates = [session.ask(draw, "same", 0.05)[1] for draw in ("b", "d", *map(str, range(50)))]
    assert sum(rates) <= 0.05
    assert session.ask("a", "same", 0.05)[0] == 53  # it counts as another


def test_a_rate_grows_with_what_was_kept(tmp_path):
    session = JudgementSession(tmp_path / "session.jsonl", is_rate=True)
    rates = []
    for draw, verdict in (("a", "keep"), ("b", "discard"), ("c", "keep"), ("d", "keep")):
        rates.append(session.ask(draw, "change", 0.06)[1])
        session.answer(draw, verdict)
        session.answer(draw, verdict)  # asked again
    assert rates == pytest.approx([0.06 / 2, 0.06 * 2 / 6, 0.06 * 2 / 12, 0.06 * 3 / 20])


def test_a_rate_bounds_the_fraction_of_false_keeps_of_changes_that_depend_on_each_other(tmp_path):
    """Evidence whose mean is 1 in each equal change, all with one common factor; every second change has an effect."""
    numbers, fractions = np.random.default_rng(0), []
    for night in range(60):
        session, kept = JudgementSession(tmp_path / f"{night}.jsonl", is_rate=True), []
        common = numbers.exponential()
        for number in range(20):
            _, alpha = session.ask(str(number), "change", 0.2)
            evidence = common * numbers.exponential() if number % 2 else 1e6
            if evidence >= 1 / alpha:
                session.answer(str(number), "keep")
                kept.append(number)
        fractions.append(sum(number % 2 for number in kept) / max(1, len(kept)))
    assert np.mean(fractions) <= 0.2


def test_both_bounds_do_not_mix_in_one_file(tmp_path):
    path = tmp_path / "session.jsonl"
    JudgementSession(path).ask("a", "change", 0.05)
    with pytest.raises(ConfigurationError, match="bounds the chance of any wrong verdict"):
        JudgementSession(path, is_rate=True).ask("b", "change", 0.05)


def test_another_file_is_refused(tmp_path):
    path = tmp_path / "notes.txt"
    path.write_text("hello\n")
    with pytest.raises(ConfigurationError, match="is not the file of a session"):
        JudgementSession(path).ask("a", "change", 0.05)
    assert path.read_text() == "hello\n"


@pytest.mark.parametrize(
    "line", ["7", "[]", '"alpha"', "[" * 2000, '{"draw": "a"}', '{"draw": 1, "verdict": "keep"}', '{"verdict": "keep"}']
)
def test_lines_of_another_type_are_refused(tmp_path, line):
    path = tmp_path / "session.jsonl"
    path.write_text(f"{line}\n")
    with pytest.raises(ConfigurationError, match="is not the file of a session"):
        JudgementSession(path).ask("a", "change", 0.05)


@pytest.mark.parametrize("wrong", [{"number": "1"}, {"alpha": "0.05"}, {"alpha": 1.5}, {"rate": 0}])
def test_values_of_another_type_are_refused(tmp_path, wrong):
    path = tmp_path / "session.jsonl"
    path.write_text(json.dumps({"number": 1, "draw": "a", "change": "", "alpha": 0.05, "rate": False, **wrong}) + "\n")
    with pytest.raises(ConfigurationError, match="is not the file of a session"):
        JudgementSession(path).ask("a", "change", 0.05)
