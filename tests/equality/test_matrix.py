"""The matrix names every strategy and task, and a comparison finds what differs."""

import pytest

from manyheads.runner.config.lookup import options
from tests.equality.__main__ import compared, without_timings
from tests.equality.matrix import LAUNCHERS, cases

CASES = dict(cases(product_of_all=True))
ELSEWHERE = {"foreign", "ray", "slurm"}  # tested by their own clusters
BY_FILE = {"custom"}  # named as own.py:Class
STARTS = {"train", "parity"}  # others start what was recorded


@pytest.mark.parametrize("group", ["parallel", "task"])
def test_every_option_is_in_the_matrix(group: str) -> None:
    named = {word for commands in CASES.values() for command in commands for word in command}
    named |= {f"{group}=single", f"{group}=classification"}  # the defaults
    assert [name for name in options(group) if f"{group}={name}" not in named and name not in BY_FILE] == []


def test_every_launcher_of_this_machine_is_in_the_matrix() -> None:
    named = {words[0].partition("=")[2] for ways in LAUNCHERS.values() for words in ways}
    assert named == set(options("launcher")) - ELSEWHERE


def test_a_difference_is_found_and_a_timing_is_not(capsys: pytest.CaptureFixture[str]) -> None:
    one = {"table": [{"loss": "0.5", "train_seconds": "1"}]}
    other = {"table": [{"loss": "0.5", "train_seconds": "2"}]}
    assert compared({"case": without_timings(one)}, [("case", without_timings(other))]) == 0
    other["table"][0]["loss"] = "0.4"
    assert compared({"case": without_timings(one)}, [("case", without_timings(other))]) == 3
    assert "case > table > 0 > loss: '0.5' -> '0.4'" in capsys.readouterr().out
    assert compared({}, [("case", without_timings(other))]) == 3


def test_every_run_has_one_thread() -> None:
    fixed = "launcher.threads_per_rank=1"
    started = {name: command for name, commands in CASES.items() for command in commands if command[0] in STARTS}
    assert [name for name, command in started.items() if fixed not in command] == []
