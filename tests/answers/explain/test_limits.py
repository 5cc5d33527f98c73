"""What an explanation says of its measurements."""

from dataclasses import replace
from pathlib import Path

import pytest

from manyheads.runner.answers.explain.answer import Explanation
from manyheads.runner.answers.measure.limits import Limit, Seconds, milliseconds
from manyheads.runner.config.candidates import Candidate

SINGLE = {"update": 0.010, "loader": 0.002, "batch": 0.009, "passes": 0.007, "optimizer": 0.001}
RANKS = {**SINGLE, "exchange": 0.003}


def limit(base, **seconds):
    return Limit.of({name: Seconds(value, value, value) for name, value in {**base, **seconds}.items()})


@pytest.mark.parametrize(
    ("seconds", "name", "part", "factor", "said"),
    [
        ({}, "passes", "compute", 10 / 7, "Computing limits this run: measured alone, it takes 7 of an update's 10"),
        ({"loader": 0.0095}, "loader", "data", 10 / 9.5, "Loading data limits this run: measured alone, it takes 9.5"),
        ({"exchange": 0.008}, "exchange", "communication", 10 / 8, "Communication limits this run"),
        ({"optimizer": 0.008}, "optimizer", "optimizer", 10 / 8, "The optimizer's step limits this run"),
        ({"loader": 0.011}, "loader", "data", 1.0, "everything else could make updates at most 1.00 times as fast"),
        ({"passes": 0.004}, "passes", "compute", 2.5, "No single part limits this run"),
    ],
)
def test_what_takes_longest_alone_limits(seconds, name, part, factor, said):
    found = limit(RANKS, **seconds)
    assert (found.name, found.part, found.factor) == (name, part, pytest.approx(factor))
    assert said in found.sentence


def test_where_passes_communicate_an_update_without_loading_counts_as_computing():
    found = limit({name: value for name, value in RANKS.items() if name != "passes"})
    assert (found.name, found.part) == ("batch", "compute")
    assert "including the communication within it" in found.sentence


@pytest.mark.parametrize(("seconds", "text"), [(0.0001, "0.1"), (0.00123, "1.23"), (0.0999, "99.9"), (1.5, "1,500")])
def test_milliseconds_have_three_digits(seconds, text):
    assert milliseconds(seconds) == text


def explanation(rounds=(0.010, 0.010, 0.010)):
    seconds = {name: [value] * 3 for name, value in SINGLE.items()} | {"update": [*rounds]}
    candidates = [
        Candidate("trainer.channels_last", "compute", "trainer.channels_last=true"),
        Candidate("data.num_workers", "data", "data.num_workers=1"),
        Candidate("trainer.compile", "compute", "", "not here"),
    ]
    time = {"data": 1.0, "compute": 3.0, "communication": 0.0}
    return Explanation.of(Path("x"), seconds, time, ranks=1, candidates=candidates, base=["model=mlp"])


def test_what_is_shown(capsys):
    explanation().show()
    text = capsys.readouterr().out
    assert "An update's time as training reports it (ms): data 2.5, compute 7.5." in text
    assert "Worth trying: trainer.channels_last=true; data.num_workers=1.\n" in text
    assert "An update waits 2.5 ms for its batch: without that wait, updates would be about 1.11 times as fast." in text
    assert "judge model=mlp --change trainer.channels_last=true" in text
    assert "the machine was busy" not in text


def test_changes_of_other_parts_are_not_proposed(capsys):
    explanation(rounds=(0.0095, 0.0095, 0.0095)).show()
    text = capsys.readouterr().out
    assert "Worth trying: trainer.channels_last=true.\n" in text
    assert "waits" not in text


def test_of_a_recorded_run_no_judgement_is_proposed(capsys):
    replace(explanation(), base=None).show()
    text = capsys.readouterr().out
    assert "Worth trying: " in text
    assert "judge" not in text


def test_a_busy_machine_is_noticed(capsys):
    explanation(rounds=(0.010, 0.010, 0.015)).show()
    assert "Updates took up to 50 % longer in one round than in another" in capsys.readouterr().out
