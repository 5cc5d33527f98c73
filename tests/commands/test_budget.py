"""``manyheads budget``: limits, what was spent, what is left, by which runs; torch is not imported to ask."""

import json
import os
import subprocess
import sys

import pytest

from manyheads.launchers.companions.budget.limits import NAMED
from tests.conftest import ROOT
from tests.launchers.companions.budget.conftest import session, spent


@pytest.fixture
def outputs(tmp_path, monkeypatch):
    monkeypatch.delenv(NAMED, raising=False)
    (tmp_path / "outputs").mkdir()
    return tmp_path / "outputs"


def test_no_budget(outputs, command):
    assert command("budget").out == "no budget: outputs/budget.yaml does not exist, and MANYHEADS_BUDGET is not set\n"
    done = command("budget", "--json")
    assert (done.code, json.loads(done.out)["result"]["file"]) == (0, None)
    assert [*outputs.iterdir()] == []


def test_what_is_spent_and_left(outputs, command):
    (outputs / "budget.yaml").write_text("device_seconds: 2m\nruns: 20\ndisk: 1MB\nuntil: 2999-01-01 00:00")
    (outputs / "one").mkdir()
    (outputs / "one" / "file").write_bytes(bytes(1000))
    some = [session(outputs / "one", devices=2, seconds=20), session(outputs / "two", seconds=50)]
    spent(outputs / "budget.yaml", *some, session(outputs / "one", devices=1, seconds=10))
    done = command("budget", "--json")
    result = json.loads(done.out)["result"]
    assert done.code == 0
    assert not result["is_spent"]
    limits = {
        limit["name"]: (limit["limit"], round(limit["spent"]), round(limit["left"])) for limit in result["limits"]
    }
    until = limits.pop("until")
    assert limits == {"device_seconds": (120, 100, 20), "runs": (20, 2, 18), "disk": (1e6, 1000, 999_000)}
    assert until[0] - until[1] == pytest.approx(until[2], abs=2)
    one = {"run": str(outputs / "one"), "devices": 1, "kind": "core", "sessions": 2}
    assert [run.pop("device_seconds") for run in result["runs"]] == pytest.approx([50, 50], abs=0.5)
    assert one in result["runs"]


def test_as_people_read_it(outputs, command):
    (outputs / "budget.yaml").write_text("runs: 12")
    spent(outputs / "budget.yaml", *(session(outputs / str(number), seconds=100 - number) for number in range(12)))
    done = command("budget")
    assert done.code == 3
    first, title, runs, _, _, longest, *_, last = done.out.splitlines()
    assert first == "outputs/budget.yaml: spent"
    assert title.split() == ["limit", "spent", "left"]
    assert runs.split() == ["runs", "12", "12", "0"]
    assert longest.split() == ["outputs/0", "100.0", "1", "core"]
    assert last == "and 2 more, 179.0 device-seconds"


def test_one_that_cannot_be_read(outputs, command):
    (outputs / "budget.yaml").write_text("runs: 12\nruns")
    done = command("budget")
    assert done.code == 2
    assert "budget.yaml, the budget, cannot be read: " in done.err


def test_torch_is_not_imported(outputs, tmp_path):
    (outputs / "budget.yaml").write_text("runs: 1")
    code = "import sys; from manyheads.runner.app import main; main(['budget']); print('torch' in sys.modules)"
    environment = {**os.environ, "PYTHONPATH": str(ROOT / ".names")}
    words = [sys.executable, "-c", code]
    done = subprocess.run(words, env=environment, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "False"
