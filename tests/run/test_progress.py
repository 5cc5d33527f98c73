"""What a command says while it works: nothing if it is quick, then lines, or events."""

import json
import time
from functools import partial

import pytest

from manyheads.runner.errors import Interrupted
from manyheads.runner.respond import respond
from manyheads.runner.run import progress
from manyheads.runner.run.answer import Problem
from manyheads.runner.run.progress import each, keeping, say, working


@pytest.fixture
def slow(monkeypatch):
    """All work takes longer than nobody needs to know."""
    monkeypatch.setattr(progress, "QUIET", 0.0)
    monkeypatch.setattr(progress, "BETWEEN", 0.02)
    monkeypatch.setattr(progress, "REFRESH", 0.02)


@pytest.fixture
def said(capfd):
    """Waits until a text has been printed on stderr."""
    heard = []

    def wait(text: str) -> None:
        deadline = time.monotonic() + 60
        while text not in "".join(heard):
            assert time.monotonic() < deadline, "".join(heard)
            time.sleep(0.01)
            out, err = capfd.readouterr()
            assert out == ""
            heard.append(err)

    return wait


def test_quick_work_is_silent(capfd):
    assert [*each([1, 2], "counting")] == [1, 2]
    assert capfd.readouterr() == ("", "")


def test_slow_work_says_how_far_it_is(slow, said):
    with working("counting", 3) as work:
        said("counting, 0 of 3, after 0 s\n")
        work.advance()
        said("counting, 1 of 3, after 0 s, 0 s left\n")
        work.advance("summing")
        said("summing, 2 of 3")


def test_a_single_part_that_takes_long_is_told_of_while_it_does(slow, said):
    with working("exporting"):
        said("exporting, after 0 s\n")
        said("exporting, after 1 s\n")


def test_on_a_terminal_a_bar_comes_once_it_takes_long(slow, said, monkeypatch):
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TTY_COMPATIBLE", "1")
    with working("counting", 3) as work:
        said("0/3")
        work.advance()
        said("1/3")


def test_items_may_be_made_one_by_one(capfd):
    made = []
    for number in each((made.append(number) or number for number in range(3)), "counting", total=3):
        assert made[-1] == number
    assert capfd.readouterr() == ("", "")


def test_events(capfd, monkeypatch):
    monkeypatch.setenv("MANYHEADS_PROGRESS", "json")
    for _ in each(["a", "b"], "counting"):
        pass
    events = [json.loads(line) for line in capfd.readouterr().err.splitlines()]
    assert [(each["event"], each["done"], each["total"]) for each in events] == [("progress", n, 2) for n in (0, 1, 2)]


@pytest.mark.parametrize("signal", [KeyboardInterrupt, partial(Interrupted, 2)], ids=repr)
@pytest.mark.parametrize("room", [partial(working, "counting", 3), partial(keeping, "counting")])
def test_ctrl_c_says_what_is_kept(capfd, room, signal):
    def counts() -> None:
        with room(kept="the half is kept"):
            raise signal()

    with pytest.raises((KeyboardInterrupt, Interrupted)) as stop:
        counts()
    assert Problem.of(stop.value).kept == "counting: the half is kept"  # in JSON
    assert respond("count", counts) == 130
    assert capfd.readouterr().err == "\ninterrupted by SIGINT\ncounting: the half is kept\n"


def test_a_line_for_work_during_which_nothing_else_can_be_shown(capfd, monkeypatch):
    say("round 3")
    assert capfd.readouterr().err == "round 3\n"
    monkeypatch.setenv("MANYHEADS_PROGRESS", "json")
    say("round 3")
    assert json.loads(capfd.readouterr().err)["what"] == "round 3"
