"""The processes of a parallel sweep, each of which runs one job after the other."""

import os
import time
from collections.abc import Callable, Iterator
from multiprocessing import forkserver
from pathlib import Path

import pytest

from manyheads.launchers.sweep.run_jobs import run_jobs
from manyheads.launchers.sweep.slots import Slot
from manyheads.launchers.sweep.sweep_options import Options
from manyheads.runner.errors import ConfigurationError
from manyheads.runner.run.ledger import Entry, Ledger
from manyheads.runner.run.run_folder import RunFolder
from tests.in_process import config

GPU = "CUDA_VISIBLE_DEVICES"


def see_gpus(entry: Entry) -> None:
    """A job that only says which GPUs it sees, the way that a job says anything: by how it ends."""
    raise ConfigurationError(os.environ.get(GPU, "whatever this machine has"))


@pytest.fixture
def slot(monkeypatch: pytest.MonkeyPatch) -> Iterator[Slot]:
    monkeypatch.delenv(GPU, raising=False)  # the suite hides GPUs
    slot = Slot(0, see_gpus)
    yield slot
    slot.end()


def test_a_job_sees_nothing_of_the_environment_of_the_one_before(slot, tmp_path):
    seen = []
    for gpus in ("1", None, "0", None):
        slot.give(Entry(0, "0", []), {} if gpus is None else {GPU: gpus}, [], str(tmp_path / "0" / "console.log"))
        seen.append(slot.take().reason)
    assert seen == ["1", "whatever this machine has", "0", "whatever this machine has"]


@pytest.mark.parametrize(("jobs", "waiting"), [("auto", 1), (3, 3)])
def test_with_auto_one_job_at_a_time_waits_for_an_engine(tmp_path, monkeypatch, jobs, waiting):
    """Jobs that write nothing at first, as if an engine had no room, then something, and then end together."""
    from manyheads.launchers.ray import RayOption

    monkeypatch.setattr(RayOption, "unavailable", lambda option: None)
    entries = [Entry(number, str(number), []) for number in range(3)]
    folders = [RunFolder(tmp_path / entry.folder) for entry in entries]
    for folder in folders:
        folder.write_config(config("parallel=ddp", "launcher=ray"))
    seen = tmp_path / "seen"

    def write(path: Path, text: str) -> None:
        with open(path, "a") as file:
            file.write(text)

    def start(entry: Entry) -> None:
        write(seen, "waits\n")
        until(lambda: seen.read_text().count("waits") == 3 or jobs == "auto")
        write(seen, "runs\n")
        folders[entry.job].logs.mkdir()
        write(folders[entry.job].logs / "node_0.log", "output")
        until(lambda: seen.read_text().count("runs") == 3)

    Ledger(tmp_path).create({}, *entries)
    done = run_jobs(entries, Ledger(tmp_path), Options(jobs=jobs), start, slots=3)
    assert [entry.state for entry in done] == ["completed"] * 3
    lines = seen.read_text().split()
    assert max(lines[:n].count("waits") - lines[:n].count("runs") for n in range(len(lines) + 1)) == waiting


def test_after_jobs_in_this_process_each_slot_starts_its_own_server(tmp_path):
    entries = [Entry(number, str(number), []) for number in range(2)]
    Ledger(tmp_path).create({}, *entries)
    forkserver.ensure_running()
    done = run_jobs(entries, Ledger(tmp_path), Options(jobs=2), lambda entry: forkserver.ensure_running(), slots=2)
    assert [(entry.state, entry.reason) for entry in done] == [("completed", None)] * 2


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)
