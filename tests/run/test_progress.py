"""What a command says while it works: nothing if it is quick, then lines, or events."""

import json

import pytest

from manyheads.runner.run import progress
from manyheads.runner.run.progress import each, working


@pytest.fixture
def slow(monkeypatch):
    """All work takes longer than nobody needs to know."""
    monkeypatch.setattr(progress, "QUIET", 0.0)
    monkeypatch.setattr(progress, "BETWEEN", 0.0)


def test_quick_work_is_silent(capfd):
    assert [*each([1, 2], "counting")] == [1, 2]
    assert capfd.readouterr() == ("", "")


def test_slow_work_says_how_far_it_is(capfd, slow):
    with working("counting", 3) as work:
        work.advance()
        work.advance("summing")
    out, err = capfd.readouterr()
    assert out == ""
    assert "counting, 1 of 3, after 0 s, 0 s left" in err
    assert "summing, 2 of 3" in err


def test_events(capfd, monkeypatch):
    monkeypatch.setenv("MANYHEADS_PROGRESS", "json")
    for _ in each(["a", "b"], "counting"):
        pass
    events = [json.loads(line) for line in capfd.readouterr().err.splitlines()]
    assert [(each["event"], each["done"], each["total"]) for each in events] == [("progress", n, 2) for n in (0, 1, 2)]


def test_ctrl_c_says_what_is_kept(capfd):
    with pytest.raises(KeyboardInterrupt), working("counting", kept="the first half is kept"):
        raise KeyboardInterrupt
    assert "counting: the first half is kept" in capfd.readouterr().err
