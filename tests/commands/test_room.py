"""``manyheads room``: who uses what, and who waits; torch is not imported to ask."""

import json
import os
import subprocess
import sys

import pytest

from manyheads.launchers.companions.room.claims import Claim, boot_id
from manyheads.launchers.companions.room.registry import Registry
from manyheads.runner.commands.room import examined
from tests.conftest import ROOT

CORES = tuple(map(str, sorted(os.sched_getaffinity(0))))


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("MANYHEADS_LEASES", str(tmp_path / "leases"))
    return tmp_path / "leases"


@pytest.fixture
def in_use(folder):
    """A run on the first core, and one that waits for all."""
    boot, since = boot_id(), 1_700_000_000.0
    with Registry.created() as registry:
        leases = []
        for claim in (
            Claim("/outputs/first", 11, since, boot, "core", 1, CORES, CORES[:1]),
            Claim("/outputs/second", 12, since, boot, "core", len(CORES), CORES),
            Claim("/outputs/third", 13, since, "another machine", "core", 1, CORES, CORES[:1]),
        ):
            with registry.turn() as claims:
                leases.append(registry.add(claim, claims))
        yield
        for lease in leases:
            lease.end()


def test_nothing_is_in_use_and_nothing_is_created(folder, command):
    done = command("room", "--json")
    room = json.loads(done.out)["result"]
    assert done.code == 0
    assert room["folder"] is None
    assert [(one["device"], one["runs"]) for one in room["devices"]] == [(core, []) for core in CORES]
    assert not folder.exists()


def test_who_uses_what_and_who_waits(in_use, folder, command):
    room = json.loads(command("room", "--json").out)["result"]
    first = {"run": "/outputs/first", "pid": 11, "since": 1_700_000_000.0}
    assert room["devices"][0] == {"kind": "core", "device": CORES[0], "runs": [first], "processes": []}
    assert all(not one["runs"] for one in room["devices"][1:])
    assert [(one["run"], one["count"], one["among"]) for one in room["queue"]] == [
        ("/outputs/second", len(CORES), [*CORES])
    ]
    assert room["folder"] == str(folder)


def test_as_people_read_it(in_use, command):
    title, first, *_, waits = command("room").out.splitlines()
    assert title.split() == ["devices", "used", "by"]
    assert first.startswith(f"core {CORES[0]} ")
    assert "/outputs/first (process 11, since 2023-11-1" in first
    assert waits.startswith("waits, 1: /outputs/second (process 12, since 2023-11-1")


def test_processes_of_others_on_gpus(monkeypatch):
    monkeypatch.setattr("manyheads.runner.machine.hardware.gpu_ids", lambda: ["GPU-1", "GPU-2"])
    monkeypatch.setattr("manyheads.runner.commands.room.processes", lambda uuids: {"GPU-1": [41], "GPU-2": [42]})
    used = Claim("/outputs/first", 11, 0.0, "", "gpu", 1, ("GPU-2",), ("GPU-2",), 1)
    devices = [one for one in examined([used], None).devices if one.kind == "gpu"]
    assert [(one.device, len(one.runs), one.processes) for one in devices] == [("GPU-1", 0, [41]), ("GPU-2", 1, [])]


def test_a_folder_of_others_is_refused(folder, command):
    folder.mkdir()
    folder.chmod(0o777)
    done = command("room")
    assert done.code == 2
    assert "has the mode 777, not 700" in done.err


def test_torch_is_not_imported(folder):
    code = "import sys; from manyheads.runner.app import main; main(['room']); print('torch' in sys.modules)"
    environment = {**os.environ, "PYTHONPATH": str(ROOT / ".names")}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "False"
