"""The ledger of a budget: full disks, half-written lines, killed processes, and those that write at the same time."""

import errno
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

from manyheads.launchers.companions.budget import spending
from manyheads.launchers.companions.budget.spending import SpendingLedger
from manyheads.launchers.companions.budget.watching import LiveSpending
from manyheads.runner.errors import ConfigurationError
from tests.conftest import ROOT
from tests.launchers.companions.budget.conftest import session, spent, until


def used(ledger: SpendingLedger) -> list[float]:
    return [round(line.device_seconds) for line in ledger.sessions()]


def test_each_start_is_a_line_whose_end_keeps_its_width(budget, tmp_path):
    ledger = SpendingLedger(budget("runs: 5"))
    assert ledger.sessions() == []
    with ledger.turn():
        line = ledger.add(session(tmp_path / "run", devices=3))
    size = ledger.path.stat().st_size
    line._since -= 1e7
    line.beat()
    assert used(ledger) == [30_000_000]
    line.end()
    assert ledger.path.stat().st_size == size
    assert not ledger.sessions()[0].is_running
    assert ledger.path.name == "team.yaml.spent"


def test_a_line_that_was_not_completed_is_left_alone(budget, tmp_path):
    ledger = spent(budget("runs: 5"), session(tmp_path / "one", seconds=10))
    with open(ledger.path, "a") as file:
        file.write('{"run": "/outputs/hal')
    assert used(ledger) == [10]
    spent(budget("runs: 5"), session(tmp_path / "two", seconds=20))
    assert used(ledger) == [10, 20]
    live = LiveSpending(ledger.path)
    live.read()
    assert [round(line.seconds) for line in live.sessions()] == [10, 20]
    live.close()


@pytest.mark.parametrize("text", ["1", "null", "{}", '{"run": "/a"}', "[" * 5000, "\x00", '{"seconds": -5}'])
def test_lines_of_anything_else_are_left_alone(text, budget, tmp_path):
    ledger = spent(budget("runs: 5"), session(tmp_path / "one", seconds=10))
    with open(ledger.path, "a") as file:
        file.write(f"{text}\n")
    assert used(ledger) == [10]


def test_many_that_start_at_the_same_time_have_a_line_each(budget, tmp_path):
    path = budget("runs: 50")
    with ThreadPoolExecutor(8) as pool:
        [*pool.map(lambda number: spent(path, session(tmp_path / str(number), seconds=1)), range(40))]
    assert used(SpendingLedger(path)) == [1] * 40
    assert len({line.run for line in SpendingLedger(path).sessions()}) == 40


def test_what_a_killed_process_has_used_counts(budget, tmp_path):
    path = budget("device_seconds: 1000")
    code = (
        "import sys, time; from pathlib import Path\n"
        "from manyheads.launchers.companions.budget.watching import counted\n"
        "with counted(Path(sys.argv[1]), Path(sys.argv[2]), kind='core', devices=10, run=None): time.sleep(100)"
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT / ".names")}
    process = subprocess.Popen([sys.executable, "-c", code, str(path), str(tmp_path / "run")], env=environment)
    ledger = SpendingLedger(path)
    try:
        until(lambda: sum(line.device_seconds for line in ledger.sessions()) > 5)
    finally:
        process.kill()
        process.wait()
    (line,) = ledger.sessions()
    assert line.device_seconds > 5
    live = LiveSpending(ledger.path)
    live.read()
    until(lambda: live.devices() == 0)  # though nobody has noted its end
    assert live.sessions() == [line]
    live.close()


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EROFS])
def test_a_disk_that_takes_no_line_refuses_the_start(number, budget, tmp_path, monkeypatch):
    ledger = SpendingLedger(budget("runs: 5"))

    def fail(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(spending, "_write", fail)
    with pytest.raises(ConfigurationError) as error, ledger.turn():
        ledger.add(session(tmp_path / "run"))
    assert f"{ledger.path}, in which runs count what they use of the budget: {os.strerror(number)}" in str(error.value)


def test_a_disk_that_fails_meanwhile_is_noted(budget, tmp_path, monkeypatch):
    ledger = SpendingLedger(budget("runs: 5"))
    with ledger.turn():
        line = ledger.add(session(tmp_path / "run"))

    def fail(*_: object) -> None:
        raise OSError(errno.EIO, "failed")

    with monkeypatch.context() as patch:
        patch.setattr(spending, "_write", fail)
        line.beat()
    assert line.error is not None
    line.end()
    assert line.error is None
