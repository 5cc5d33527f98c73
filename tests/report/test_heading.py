"""Where the runs come from, on top of the page."""

import json
import time
from pathlib import Path

import pytest

from manyheads.runner.report.heading import facts, heading
from tests.report.sweep import Sweep
from tests.sweeps import set_column

PROVENANCE = {
    "host": "node1",
    "commit": "0123456789abcdef",
    "clean": False,
    "command": "python run.py -m optimizer.lr=1,2",
    "devices": ["NVIDIA H200"] * 2,
    "versions": {"python": "3.11.7", "torch": "2.15.0", "cuda": "13.2"},
}


def edit(folder: Path, **changes: object) -> None:
    path = folder / "provenance.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


def test_it_names_command_machine_software_and_commit(sweep: Sweep):
    for rate in (1, 2):
        edit(sweep.job(f"optimizer.lr={rate}"), **PROVENANCE)
    found = facts(sweep.compared())
    assert found.pop("date")
    assert found == {
        "command": "python run.py -m optimizer.lr=1,2",
        "machine": "node1: 2 x NVIDIA H200",
        "software": "Python 3.11.7, torch 2.15.0, CUDA 13.2",
        "manyheads": "commit 0123456789 with uncommitted changes",
    }
    edit(sweep.folder / "1", command="another")
    assert "command" not in facts(sweep.compared())


def test_on_a_cpu_the_processor_is_named(sweep: Sweep):
    edit(sweep.job("optimizer.lr=1"), host="node1", cpu={"model": "EPYC", "cores": 2}, clean=True, commit="0" * 40)
    found = facts(sweep.compared())
    assert (found["machine"], found["manyheads"]) == ("node1: EPYC, 2 cores", "commit 0000000000")


def test_the_name_that_runs_were_given_is_the_heading(sweep: Sweep):
    for rate in (1, 2):
        sweep.job(f"optimizer.lr={rate}", "name=rates")
    comparison = sweep.compared()
    assert (heading(comparison), facts(comparison)["folder"]) == ("rates", str(sweep.folder))
    sweep.job("optimizer.lr=3", "name=other")
    assert heading(sweep.compared()) == str(sweep.folder)


def test_the_date_is_that_of_the_epochs(sweep: Sweep, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    folder = sweep.job("optimizer.lr=1")
    set_column(folder / "epochs.csv", "started", [1_800_000_000, 1_800_000_010, 1_800_007_200])
    assert facts(sweep.compared())["date"] == "2027-01-15 08:00 to 10:00"
    (folder / "provenance.json").unlink()
    assert facts(sweep.compared()) == {}
