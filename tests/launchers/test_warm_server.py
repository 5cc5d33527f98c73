"""The process that warm ranks are forked from: each of them is as good as a fresh one."""

import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from multiprocessing import forkserver
from pathlib import Path
from typing import Any

import psutil
import pytest

from manyheads.launchers import warm_server as warm
from manyheads.launchers.launch import launch, prepare
from manyheads.runner.errors import Interrupted, RunFailed
from tests import zygote
from tests.launchers.conftest import freeze

SPY = ("parallel=ddp", "model=custom", "model._target_=spy.Spy", "trainer.max_steps=2", "trainer.evaluate_every=0")

OF_THE_RUN = ("MANYHEADS_MEETING", "MANYHEADS_CHECKED", "MANYHEADS_HEARTBEAT_FILE", "MANYHEADS_HELD")


@pytest.fixture(autouse=True)
def _no_server_before_and_after(monkeypatch):
    """Each test starts the real one."""
    warm.stop()
    monkeypatch.setattr("multiprocessing.util.spawnv_passfds", zygote.SPAWN)
    yield
    warm.stop()


def server() -> psutil.Process | None:
    pid = forkserver._forkserver._forkserver_pid
    return pid and psutil.Process(pid)


def run(path: Path, *overrides: str) -> dict[str, Any]:
    """What the spy found in rank 0 of one run."""
    report = path.with_suffix(".json")
    launch(prepare(freeze(path, *SPY, f"+model.report={report}", *overrides)))
    return json.loads(report.read_text())


def without_places(found: dict[str, Any]) -> dict[str, Any]:
    """Without what differs between any two runs: where ranks meet, its lease, and numbers in the names of pipes."""
    environment = {name: value for name, value in found["environment"].items() if name not in OF_THE_RUN}
    places = ("/proc/", os.environ["MANYHEADS_LEASES"])
    files = [name.partition(":[")[0] for name in found["files"] if not name.startswith(places)]
    return {**found, "environment": environment, "files": files}


@pytest.mark.processes
def test_no_rank_finds_what_one_before_it_left_nor_whether_its_server_was_begun_early(tmp_path: Path, monkeypatch):
    first = run(tmp_path / "1")
    forked_from = server()
    second = run(tmp_path / "2")
    assert server() == forked_from
    warm.stop()
    monkeypatch.setenv("AT_THE_BEGINNING", "1")
    warm.begin()
    forked_from = server()
    monkeypatch.delenv("AT_THE_BEGINNING")
    third = run(tmp_path / "3")
    assert server() == forked_from
    for number, other in ((2, second), (3, third)):
        files = [name.replace(str(tmp_path / "1"), str(tmp_path / f"{number}")) for name in first["files"]]
        assert without_places(other) == without_places({**first, "files": files})
    assert (first["kept"], first["cuda"], first["imported"], first["main"]) == (0, False, False, None)
    assert first["has_logger"]  # imported by the server, since the run names it, before this rank builds its own


@pytest.mark.processes
def test_a_warm_rank_has_what_a_cold_one_has(tmp_path: Path, monkeypatch) -> None:
    alone = "launcher.nproc_per_node=1"
    monkeypatch.setenv("OF_THE_FIRST", "1")
    run(tmp_path / "before", alone)
    monkeypatch.delenv("OF_THE_FIRST")
    monkeypatch.setenv("OF_THE_SECOND", "1")
    os.sched_setaffinity(0, cores := {min(before := os.sched_getaffinity(0))})
    try:
        both = [run(tmp_path / f"{warm}", f"launcher.warm={warm}", alone) for warm in ("true", "false")]
    finally:
        os.sched_setaffinity(0, before)
    known = {"files": [], "main": None, "has_logger": None}
    alike = [{**found, **known, "path": set(found["path"])} for found in map(without_places, both)]
    for found in alike:
        for name in ("TORCHINDUCTOR_CACHE_DIR", "LINES", "COLUMNS"):  # set by what is imported: torch, and GNU readline
            found["environment"].pop(name, None)
    assert alike[0] == alike[1]
    assert alike[0]["cores"] == sorted(cores)


@pytest.mark.processes
def test_a_server_that_waits_is_ended_if_it_is_not_needed_or_was_started_with_another_environment(monkeypatch) -> None:
    warm.begin()
    first = server()
    monkeypatch.setenv("MALLOC_ARENA_MAX", "2")  # which only a new process reads
    warm.start({"OMP_NUM_THREADS": "1"})
    assert not first.is_running()
    warm.end_waiting()  # the other one does not wait
    assert server().is_running()
    warm.stop()
    warm.begin()
    second = server()
    warm.end_waiting()
    assert (server(), second.is_running()) == (None, False)


@pytest.mark.processes
def test_a_server_that_waits_ends_with_its_parent() -> None:
    code = f"""
        import time
        from multiprocessing import forkserver
        from {warm.__name__} import begin
        begin()
        print(forkserver._forkserver._forkserver_pid, flush=True)
        time.sleep(60)
    """
    with subprocess.Popen([sys.executable, "-c", textwrap.dedent(code)], stdout=subprocess.PIPE) as parent:
        begun = psutil.Process(int(parent.stdout.readline()))
        parent.kill()
    psutil.wait_procs([begun], timeout=10)
    assert not begun.is_running()


@pytest.mark.tail
@pytest.mark.processes
def test_what_libraries_read_at_import_restarts_the_server(tmp_path: Path) -> None:
    pids = []
    for threads in (1, 2, 2):
        found = run(tmp_path / f"{len(pids)}", f"launcher.threads_per_rank={threads}")
        assert (found["environment"]["OMP_NUM_THREADS"], found["threads"]) == (str(threads), threads)
        pids.append(server().pid)
    assert pids[0] != pids[1] == pids[2]
    assert not psutil.pid_exists(pids[0])


@pytest.mark.tail
@pytest.mark.processes
def test_several_servers_stay_for_runs_that_alternate(tmp_path: Path) -> None:
    pids = []
    with warm.several(2):
        for threads in (1, 2, 1, 2, 3):
            found = run(tmp_path / f"{len(pids)}", f"launcher.threads_per_rank={threads}")
            assert found["environment"]["OMP_NUM_THREADS"] == str(threads)
            pids.append(server().pid)
        assert pids[0] == pids[2] != pids[1] == pids[3]
        assert [psutil.pid_exists(each) for each in (pids[0], pids[1], pids[4])] == [False, True, True]
    assert not psutil.pid_exists(pids[1])
    assert server().pid == pids[4]


@pytest.mark.parametrize(
    ("name", "restarts"),
    [
        *((name, True) for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "KMP_AFFINITY", "OPENBLAS_NUM_THREADS")),
        *((name, True) for name in ("LD_PRELOAD", "MALLOC_ARENA_MAX", "GLIBC_TUNABLES", "TORCH_LOGS", "PYTHONUTF8")),
        *(
            (name, False)
            for name in (
                "PYTHONPATH",
                "CUDA_VISIBLE_DEVICES",
                "NCCL_DEBUG",
                "TORCH_FR_BUFFER_SIZE",
                "TORCH_NCCL_DUMP_ON_TIMEOUT",
                "RANK",
                "MANYHEADS_PARENT",
            )
        ),
        *((name, False) for name in ("TORCH_FR_BUFFER_SIZE", "TORCH_NCCL_DUMP_ON_TIMEOUT")),
    ],
)
def test_variables_that_libraries_read_at_import(name: str, restarts: bool) -> None:
    assert bool(warm.READ_AT_IMPORT.fullmatch(name)) is restarts


@pytest.mark.tail  # it is timed
@pytest.mark.processes
def test_it_starts_in_the_background_and_once(monkeypatch) -> None:
    begun = time.monotonic()
    warm.start({"OMP_NUM_THREADS": "1"})
    assert time.monotonic() - begun < 0.5
    first = server()
    blocked = int(next(x for x in Path(f"/proc/{first.pid}/status").read_text().splitlines() if "SigBlk" in x)[7:], 16)
    assert {s for s in (signal.SIGINT, signal.SIGTERM) if blocked >> (s - 1) & 1} == {signal.SIGINT, signal.SIGTERM}
    warm.start({"OMP_NUM_THREADS": "1"})
    assert server() == first
    warm.start({"OMP_NUM_THREADS": "2"})  # while it imports
    assert server() != first
    assert not first.is_running()


@pytest.mark.tail
@pytest.mark.processes
def test_it_does_not_grow(tmp_path: Path) -> None:
    sizes = []
    for _ in range(21):
        process = warm.fork(os._exit, 7, environment={"OMP_NUM_THREADS": "1"})
        process.join(10)
        assert process.exitcode == 7
        process.close()
        sizes.append((server().num_fds(), server().memory_info().rss, psutil.Process().num_fds()))
    deadline = time.monotonic() + 10
    while server().num_fds() > sizes[0][0]:  # it tells how a child ended before it closes what it had of it
        assert time.monotonic() < deadline
        time.sleep(0.01)
    assert sizes[-1][2] <= max(size[2] for size in sizes[:3])
    assert sizes[-1][1] - sizes[0][1] < 2**20
    assert server().num_threads() == 1


@pytest.mark.tail
@pytest.mark.processes
def test_after_its_death_the_next_job_has_a_new_one() -> None:
    warm.fork(os._exit, 0, environment={}).join(10)
    dead = server()
    dead.kill()
    while dead.status() != psutil.STATUS_ZOMBIE:
        time.sleep(0.01)
    process = warm.fork(os._exit, 7, environment={})
    process.join(10)
    assert process.exitcode == 7
    assert server() != dead


@pytest.mark.processes
def test_its_death_while_it_imports_is_told(monkeypatch, tmp_path: Path) -> None:
    (tmp_path / "deadly.py").write_text("import os; os._exit(3)")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setattr(warm, "PRELOAD", "deadly")
    with pytest.raises(RunFailed, match=r"launcher\.warm=false"):
        warm.fork(os._exit, 0, environment={})


@pytest.mark.processes
def test_a_signal_while_it_imports_ends_the_wait(monkeypatch, tmp_path: Path) -> None:
    """However long the imports take: this one has no end."""
    (tmp_path / "endless.py").write_text("import time; time.sleep(3600)")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setattr(warm, "PRELOAD", "endless")
    with pytest.raises(Interrupted):
        warm.fork(os._exit, 0, environment={}, signals=[signal.SIGINT])
    assert forkserver._forkserver._forkserver_pid is None
