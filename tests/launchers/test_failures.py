"""When one rank fails, all end soon, the first one to fail is named, and no process is left."""

import json
import os
import re
import shutil
import signal
import sys
import time
from itertools import product
from pathlib import Path

import psutil
import pytest

from manyheads.launchers import warm_server
from manyheads.launchers.launch import launch, prepare
from manyheads.runner.checkpoint.rank.load import complete
from manyheads.runner.errors import ConfigurationError, RunFailed
from manyheads.runner.machine.software import too_old
from manyheads.runner.run.run_folder import RunFolder
from tests import zygote
from tests.conftest import RUN, execute
from tests.launchers.conftest import LAUNCHERS, by, freeze, strategies, survivors, usable
from tests.tail import tail, tailed

FAULTY = ("model=custom", "model._target_=faulty.Faulty", "data.batch_size=48")

TWO = ["spawn", "horovodrun"]  # of what is watched alike: ranks that are our own children, and an agent's
HOW = {
    "raise": ("ArithmeticError", 1),
    "sys.exit": ("SystemExit", 7),
    "os._exit": ("ProcessDied", 9),
    "kill": ("ProcessDied", -signal.SIGKILL),
}


@pytest.mark.processes
@pytest.mark.parametrize(
    ("launcher", "rank", "how"),
    # sys.exit is reported by the rank itself, as "raise" is, whatever started it. What agents say of a rank that died
    # has tests/launchers/test_mpi_agents.py besides, and what torchrun says tests/launchers/test_torchrun.py.
    tailed(
        [*product(LAUNCHERS, [1], ["raise", "os._exit", "kill"]), ("spawn", 1, "sys.exit"), ("spawn", 0, "kill")],
        always=[("spawn", 1, "raise"), ("spawn", 0, "kill")],  # rank 1 is killed in the next test
    ),
)
def test_first_failing_rank_is_named(tmp_path: Path, launcher: str, rank: int, how: str) -> None:
    kind, code = HOW[how]
    failed = tmp_path / "failed"
    overrides = (*by(launcher), f"+model.how={how}", f"+model.rank={rank}", "+model.step=20", f"+model.once={failed}")
    folder = freeze(tmp_path / "run", *FAULTY, *overrides)
    with pytest.raises(RunFailed) as caught:
        launch(prepare(folder))
    assert time.time() - failed.stat().st_mtime < 10
    result = json.loads(folder.result.read_text())
    assert result["status"] == "failed"
    assert result["error"] == caught.value.failure.to_json()
    assert (result["error"]["rank"], result["error"]["type"], result["error"]["exit_code"]) == (rank, kind, code)
    if how == "raise":
        assert result["error"]["message"] == "made to fail"
        assert 'raise ArithmeticError("made to fail")' in result["error"]["traceback"]
    assert survivors(folder) == []


@pytest.mark.processes
@pytest.mark.parametrize(
    ("strategy", "how"),
    tailed(product(strategies(), ["kill", "raise"]), always=[(usable("fsdp"), "kill")]),
)
def test_every_strategy_names_the_first_failing_rank(tmp_path: Path, strategy: str, how: str) -> None:
    """Whatever exchange the others are in the middle of."""
    kind, code = HOW[how]
    failed = tmp_path / "failed"
    faulty = (f"+model.how={how}", "+model.rank=1", "+model.step=5", f"+model.once={failed}")
    folder = freeze(tmp_path / "run", *FAULTY, f"parallel={strategy}", *faulty)
    with pytest.raises(RunFailed) as caught:
        launch(prepare(folder))
    assert time.time() - failed.stat().st_mtime < 10
    failure = caught.value.failure
    assert (failure.rank, failure.type, failure.exit_code) == (1, kind, code)
    assert survivors(folder) == []


@pytest.mark.processes
@pytest.mark.parametrize("strategy", tailed(strategies(), always=[usable("pipeline")]))
def test_every_strategy_names_a_rank_that_stands_still(tmp_path: Path, strategy: str) -> None:
    """Whatever exchange the others wait in."""
    faulty = ("+model.how=stop", "+model.rank=1", "+model.step=5")
    stall = "launcher.stall_timeout=16"  # longer than ranks take to start beside other tests
    folder = freeze(tmp_path, *FAULTY, f"parallel={strategy}", *faulty, stall)
    with pytest.raises(RunFailed, match=r"Stopped by a signal \(SIGSTOP\): rank 1\."):
        launch(prepare(folder))
    assert folder.read_result()["error"]["type"] == "Stalled"
    assert survivors(folder) == []


@pytest.mark.processes
@pytest.mark.parametrize(
    "overrides",
    [
        tail(("launcher=inline", "parallel=single")),
        ("launcher=spawn", "parallel=ddp"),
    ],
    ids=["inline", "spawn"],
)
def test_a_disk_that_is_full_when_the_failure_is_written(small_disk: Path, parent, overrides) -> None:
    folder = RunFolder(small_disk / "run")
    how = (f"+model.how='fill {small_disk}'", "+model.step=20", "checkpoint.every=2", "trainer.device=cpu")
    code, output = parent(folder.path, *FAULTY, *overrides, *how, f"hydra.run.dir={folder.path}").end(seconds=120)
    assert code == 1
    assert f"error: the disk of {folder.path} is full, so result.json, " in output
    assert "rank 0 failed first (exit code 1): ArithmeticError: made to fail" in output.splitlines()[-1]
    assert output.count("Traceback") == 1
    assert not folder.result.exists()
    assert complete(folder.last_checkpoint)["progress"]["step"] >= 10
    assert survivors(folder) == []


@pytest.mark.processes
@pytest.mark.tail
@pytest.mark.skipif(os.getuid() == 0 and not shutil.which("setpriv"), reason="without setpriv, root may write")
@pytest.mark.parametrize("overrides", [("launcher=inline", "parallel=single"), ("parallel=ddp",)], ids=" ".join)
def test_a_run_folder_that_can_no_longer_be_written(tmp_path: Path, parent, overrides) -> None:
    """The failure is the last line, and the run ends: nothing looks for another cause of it without end."""
    folder = RunFolder(tmp_path / "run")
    how = (f"+model.how='lock {folder.path}'", "+model.step=20", "checkpoint.every=2", "trainer.device=cpu")
    under = ("setpriv", "--bounding-set=-dac_override,-dac_read_search") if os.getuid() == 0 else ()
    code, output = parent(folder.path, *FAULTY, *overrides, *how, f"hydra.run.dir={folder.path}", under=under).end(60)
    assert code == 1, output
    assert "so result.json, which records how the run ended, could not be written" in output
    assert "rank 0 failed first (exit code 1): PermissionError" in output.splitlines()[-1]
    assert survivors(folder) == []


@pytest.mark.processes
@pytest.mark.needs("mount")
@pytest.mark.parametrize("strategy", tailed(["single", "ddp"], always=[]))
def test_loader_processes_need_no_shared_memory(tmp_path: Path, strategy: str) -> None:
    """Where a container's /dev/shm is smaller than a batch, the weights are those of any other machine."""
    overrides = (f"parallel={strategy}", "data.num_workers=2", "trainer.device=cpu", "data.image_size=64")
    command = (sys.executable, str(RUN), "data=synthetic", *overrides, "trainer.max_steps=3")
    digests = set()
    for name, size in (("small", "64k"), ("large", "1g")):
        mounted = f'mount -t tmpfs -o size={size} tmpfs /dev/shm && exec "$0" "$@"'
        folder = tmp_path / name
        done = execute("unshare", "--mount", "sh", "-c", mounted, *command, f"hydra.run.dir={folder}", cwd=tmp_path)
        assert done.code == 0, done.err
        digests.add(RunFolder(folder).read_result()["weights_sha256"])
    assert len(digests) == 1


@pytest.mark.processes
def test_rank_that_leaves_early_is_a_failure(tmp_path: Path) -> None:
    folder = freeze(tmp_path, *FAULTY, "parallel=ddp", "+model.how=leave", "+model.rank=1", "+model.step=20")
    with pytest.raises(RunFailed) as caught:
        launch(prepare(folder))
    assert caught.value.failure.rank == 1
    assert survivors(folder) == []


@pytest.mark.processes
@pytest.mark.parametrize("launcher", tailed(TWO, always=["spawn"]))
def test_all_end_within_seconds(tmp_path: Path, parent, launcher: str) -> None:
    died = tmp_path / "died"
    overrides = (*FAULTY, *by(launcher), "+model.how=kill", "+model.rank=1", "+model.step=60", f"+model.once={died}")
    running = parent(tmp_path / "run", *overrides, f"hydra.run.dir={tmp_path / 'run'}")
    code, output = running.end(seconds=60)
    assert time.time() - died.stat().st_mtime < 10
    assert code == 1
    assert "rank 1 failed first" in output
    assert "SIGKILL" in output
    assert survivors(running.folder) == []


@pytest.mark.processes
@pytest.mark.parametrize("launcher", tailed(TWO, always=["spawn"]))
def test_run_that_gets_nowhere_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, launcher: str) -> None:
    """The message says so, and the log says where the rank was."""
    warm_server.stop()  # only processes that descend from this one are asked where they are
    monkeypatch.setattr("multiprocessing.util.spawnv_passfds", zygote.SPAWN)
    overrides = (
        *by(launcher),
        "+model.how=sleep",
        "+model.rank=1",
        "+model.step=5",
        "launcher.stall_timeout=16",  # longer than ranks take to start beside other tests
    )
    folder = freeze(tmp_path, *FAULTY, *overrides)
    with pytest.raises(RunFailed, match=r"launcher\.stall_timeout") as found:
        launch(prepare(folder))
    if launcher == "spawn":
        what = "(, an all_reduce of .* kB)" + "?" * bool(too_old("2.11"))  # Gloo kept no record in 2.6
        assert re.search(
            rf"Rank 1 had not reached collective operation \d+{what}, at which rank 0 waited\.$", str(found.value)
        )
    assert folder.read_result()["error"]["type"] == "Stalled"
    assert "faulty.py" in folder.rank_log(1).read_text()
    assert survivors(folder) == []


@pytest.mark.slow
@pytest.mark.tail
def test_inline_run_that_gets_nowhere_fails(tmp_path: Path, parent) -> None:
    running = parent(
        tmp_path,
        *FAULTY,
        "+model.how=sleep",
        "+model.step=5",
        "launcher.stall_timeout=6",
        f"hydra.run.dir={tmp_path}",
    )
    code, output = running.end(seconds=60)
    assert code == 1
    assert "launcher.stall_timeout" in output
    assert running.folder.read_result()["error"]["type"] == "Stalled"


def test_inline_failure_is_told_alike(tmp_path: Path) -> None:
    folder = freeze(tmp_path, *FAULTY, "+model.how=raise", "+model.step=5")
    with pytest.raises(RunFailed, match="rank 0 failed first"):
        launch(prepare(folder))
    assert folder.read_result()["error"]["type"] == "ArithmeticError"


def test_inline_exit_with_a_message_ends_with_1(tmp_path: Path) -> None:
    folder = freeze(tmp_path, *FAULTY, "+model.how=sys.exit with a message", "+model.step=5")
    with pytest.raises(RunFailed, match=r"rank 0 failed first \(exit code 1\): SystemExit: no more data"):
        launch(prepare(folder))
    assert folder.read_result()["error"]["exit_code"] == 1


@pytest.mark.processes
@pytest.mark.parametrize("launcher", tailed(TWO, always=["spawn"]))
def test_mistake_that_only_a_rank_can_find(tmp_path: Path, launcher: str) -> None:
    folder = freeze(tmp_path, "model=torchvision", "model.name=resnet5", *by(launcher))
    with pytest.raises(ConfigurationError, match=r"resnet50"):
        launch(prepare(folder))
    assert folder.read_result()["error"]["type"] == "ConfigurationError"


@pytest.mark.processes
@pytest.mark.parametrize("launcher", tailed(LAUNCHERS, always=["spawn"]))
def test_no_rank_outlives_a_killed_parent(tmp_path: Path, parent, launcher: str) -> None:
    """Not even one that neither prints nor exchanges anything, either of which would end it with an error."""
    sleeps = tmp_path / "sleeps"
    sleep = (*FAULTY, "+model.how=sleep", "+model.rank=1", "+model.step=10", f"+model.once={sleeps}")
    running = parent(tmp_path, *sleep, *by(launcher), "data.num_workers=1", f"hydra.run.dir={tmp_path}")
    running.wait_until(sleeps.exists)
    if launcher == "spawn":
        titles = {process.cmdline()[0] for process in running.ranks()}
        assert titles == {f"manyheads: rank {rank}/2 {tmp_path}" for rank in (0, 1)}
    everyone = [p.pid for p in running.ranks()] + [
        p.pid for p in psutil.Process(running.process.pid).children(recursive=True)
    ]
    assert len(everyone) >= 5
    running.process.kill()
    deadline = time.monotonic() + 20  # horovodrun's own processes wait for theirs twice five seconds
    while any(psutil.pid_exists(pid) for pid in everyone) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert [pid for pid in everyone if psutil.pid_exists(pid)] == []


@pytest.mark.processes
@pytest.mark.parametrize("launcher", tailed(["horovodrun", "mpirun"], always=[]))  # test_torchrun.py has one more
def test_killed_agent_takes_its_ranks_along(tmp_path: Path, parent, launcher: str) -> None:
    running = parent(tmp_path, *by(launcher), "trainer.epochs=1000", f"hydra.run.dir={tmp_path}")
    running.wait_for_step(10)
    agent = psutil.Process(running.process.pid).children()[0]
    os.kill(agent.pid, signal.SIGKILL)
    code, _ = running.end()
    assert code == 1
    assert survivors(running.folder) == []


@pytest.mark.processes
@pytest.mark.parametrize("names", [tail(("torchrun", "horovodrun")), tail(("spawn", "mpirun"))])
def test_two_runs_at_once_do_not_meet(tmp_path: Path, parent, names: tuple[str, str]) -> None:
    folders = [tmp_path / f"{number}" for number in (1, 2)]
    both = [
        parent(folder, *by(name), "trainer.max_steps=40", f"hydra.run.dir={folder}")
        for name, folder in zip(names, folders, strict=True)
    ]
    assert [one.end(seconds=90)[0] for one in both] == [0, 0]
    assert len({one.folder.read_result()["weights_sha256"] for one in both}) == 1
