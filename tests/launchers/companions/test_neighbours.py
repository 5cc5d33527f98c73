"""What a run says that gets less CPU time than it asks for."""

import json
import subprocess
import sys
from contextlib import ExitStack, contextmanager
from types import SimpleNamespace

import pytest

from manyheads.launchers.companions import neighbours
from manyheads.launchers.companions.neighbours import Counters, accompany, crowded
from manyheads.runner.errors import warn
from manyheads.runner.machine import hardware
from manyheads.runner.run.crowding import Crowding, crowded_runs
from manyheads.runner.run.run_folder import RunFolder

IDLE = Counters(at=0.0, used=0.0, stolen=0.0, own=0.0, waited=0.0, throttled=0.0)


def run(folder, *, threads=2, loaders=0, trains=True, is_here=True):
    launcher = SimpleNamespace(threads_per_rank=threads, is_here=is_here)
    config = SimpleNamespace(launcher=launcher, data=SimpleNamespace(num_workers=loaders))
    return SimpleNamespace(folder=RunFolder(folder), run=config, trains=trains)


@pytest.fixture(autouse=True)
def two_cores(monkeypatch):
    monkeypatch.setattr(neighbours, "bound_cores", lambda: [0, 1])


@pytest.mark.parametrize(
    ("counted", "sentence"),
    [
        ({"used": 20.0, "own": 20.0, "waited": 1.0}, None),  # alone
        ({"used": 20.0, "own": 4.0, "waited": 0.5}, None),  # others use what it does not need
        ({"used": 10.0, "own": 10.0, "waited": 10.0}, None),  # its own threads wait for each other
        ({"at": 1.0, "used": 2.0, "own": 0.4, "waited": 1.0}, None),  # too short to tell
        (
            {"used": 20.0, "own": 4.0, "waited": 6.0},
            "other programs use 1.6 of 2 cores, and this run waits for cores 60% of its time: "
            "launcher.threads_per_rank=1 may be faster",
        ),
        (
            {"used": 10.0, "own": 10.0, "throttled": 4.0},
            "the CPU quota of this run's control group is used up 40% of the time: launcher.threads_per_rank=1 may be "
            "faster",
        ),
        (
            {"used": 10.0, "own": 10.0, "waited": 10.0, "stolen": 5.0},
            "this machine's host gives 25% of the time of its cores to others, and this run waits for cores 50% of its "
            "time: launcher.threads_per_rank=1 may be faster",
        ),
    ],
)
def test_a_run_that_lacks_cores(tmp_path, counted, sentence):
    crowding = crowded(run(tmp_path), IDLE, IDLE._replace(**{"at": 10.0, **counted}))
    assert (crowding and crowding.sentence) == sentence


@pytest.mark.parametrize(
    ("threads", "loaders", "chosen", "remedy"),
    [
        (2, 0, None, "launcher.threads_per_rank=1 may be faster"),
        (2, 2, 1, "data.num_workers=1 may be faster"),
        (1, 0, None, "it would be faster on idle cores"),
    ],
)
def test_what_would_help(tmp_path, threads, loaders, chosen, remedy):
    if chosen is not None:
        (tmp_path / "threads.json").write_text(json.dumps({"threads": chosen}))
    now = IDLE._replace(at=10.0, used=20.0, own=4.0, waited=6.0)
    crowding = crowded(run(tmp_path, threads=threads, loaders=loaders), IDLE, now)
    assert crowding is not None
    assert crowding.sentence.endswith(f": {remedy}")


@contextmanager
def busy(count):
    """Other programs, not started by this one, that compute as much as they can."""
    command = [sys.executable, "-c", "while True: pass"]
    with ExitStack() as stack:
        processes = [stack.enter_context(subprocess.Popen(command)) for _ in range(count)]
        try:
            yield [process.pid for process in processes]
        finally:
            for process in processes:
                process.kill()


def test_counters_are_those_of_this_machine(monkeypatch):
    """Its cores are busy with others, for which this process waits."""
    monkeypatch.setattr(neighbours, "bound_cores", lambda: [*range(hardware.cpu_cores())])
    with busy(2 * hardware.cpu_cores()) as others:
        family = neighbours._family
        monkeypatch.setattr(neighbours, "_family", lambda: [p for p in family() if p.pid not in others])
        before = Counters.now()
        while (now := Counters.now()).own - before.own < 0.3:
            sum(range(100_000))
    assert now.used - before.used > now.own - before.own
    assert now.waited > before.waited
    assert now.at > before.at


@pytest.mark.parametrize("trains", [True, False])
def test_it_is_said_once_and_recorded(tmp_path, monkeypatch, capsys, trains):
    moments = iter([IDLE._replace(at=10.0 * n, used=20.0 * n, own=4.0 * n, waited=6.0 * n) for n in range(4)])
    ended = [False, False, True]
    monkeypatch.setattr(Counters, "now", classmethod(lambda cls: next(moments)))
    warn.cache_clear()
    (tmp_path / "steps.csv").touch()
    neighbours._watch(run(tmp_path, trains=trains), SimpleNamespace(wait=lambda seconds: ended.pop(0)))
    warn.cache_clear()
    assert capsys.readouterr().err.count("other programs use 1.6 of 2 cores") == trains
    assert (Crowding.read(tmp_path) or IDLE).waited == 0.6


def test_a_run_that_is_refused_leaves_no_record_and_says_nothing(tmp_path, monkeypatch, capsys):
    moments = iter([IDLE._replace(at=10.0 * n, used=20.0 * n, own=4.0 * n, waited=6.0 * n) for n in range(4)])
    ended = [False, False, True]
    monkeypatch.setattr(Counters, "now", classmethod(lambda cls: next(moments)))
    neighbours._watch(run(tmp_path), SimpleNamespace(wait=lambda seconds: ended.pop(0)))
    assert capsys.readouterr().err == ""
    assert [*tmp_path.iterdir()] == []


def test_nothing_is_watched_on_other_machines(tmp_path, monkeypatch):
    monkeypatch.setattr(Counters, "now", lambda: pytest.fail("watched"))
    with accompany(run(tmp_path, is_here=False)):
        pass


@pytest.mark.parametrize("content", ["", "[]", '{"seconds": 1}'])
def test_a_record_that_cannot_be_read_counts_as_none(tmp_path, content):
    (tmp_path / "crowding.json").write_text(content)
    assert Crowding.read(tmp_path) is None


def test_runs_below_a_folder(tmp_path):
    assert crowded_runs(tmp_path) is None
    for number, waited in enumerate((0.3, 0.7)):
        folder = tmp_path / "runs" / str(number)
        folder.mkdir(parents=True)
        Crowding(10.0, 2, 1.5, waited, 0.0, 0.0, threads=1, loaders=0).write(RunFolder(folder))
    assert crowded_runs(tmp_path) == (
        "2 runs lacked cores. The one that waited most: other programs use 1.5 of 2 cores, and this run waits for "
        "cores 70% of its time: it would be faster on idle cores."
    )
