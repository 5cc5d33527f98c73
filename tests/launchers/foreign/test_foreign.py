"""Real ranks under real launchers that know nothing of this project."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from manyheads.launchers.launch import launch, prepare
from manyheads.runner.run.heartbeat import Heartbeat
from manyheads.runner.run.run_folder import RunFolder
from tests.conftest import RUN
from tests.launchers.conftest import freeze, rows, survivors
from tests.needs import require

pytestmark = pytest.mark.processes

SMALL = ("model=mlp", "model.width=8", "data.batch_size=48", "trainer.device=cpu", "trainer.max_steps=20")
LONG = (*SMALL[:-1], "trainer.epochs=60", "trainer.evaluate_every=0", "trainer.log_every=5", "checkpoint.every=20")
TORCHRUN = (sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2")
MPIRUN = ("mpirun", "--allow-run-as-root", "--oversubscribe", "-np", "2", sys.executable)
HOROVODRUN = ("horovodrun", "-np", "2", "--gloo", sys.executable)
WAYS = {
    "torchrun": TORCHRUN,
    "launch": (sys.executable, "-m", "torch.distributed.launch", "--nproc-per-node", "2"),
    "mpirun": MPIRUN,
    "mpirun-horovod": MPIRUN,
    "horovodrun": HOROVODRUN,
    "horovodrun-horovod": HOROVODRUN,
}


def run(*command: str, cwd: Path, **variables: str) -> subprocess.Popen[str]:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, **variables}
    pipe = subprocess.PIPE
    return subprocess.Popen(command, cwd=cwd, env=environment, stdout=pipe, stderr=subprocess.STDOUT, text=True)


def ended(process: subprocess.Popen[str], seconds: float = 300) -> tuple[int, str]:
    output, _ = process.communicate(timeout=seconds)
    return process.returncode, output


def by_mpi(rank: int) -> dict[str, str]:
    """What mpirun tells a rank: enough for ranks that the test starts itself, which takes least time."""
    numbers = {"RANK": str(rank), "SIZE": "2", "LOCAL_RANK": str(rank), "LOCAL_SIZE": "2"}
    return {f"OMPI_COMM_WORLD_{name}": number for name, number in numbers.items()}


def runs_below(folder: Path) -> list[Path]:
    return [path.parent for path in folder.rglob("run.yaml")]


@pytest.fixture(scope="module")
def usual(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The weights of the same run by a launcher of this project."""
    folder = freeze(tmp_path_factory.mktemp("usual") / "run", *SMALL, "parallel=ddp", "launcher=spawn")
    return launch(prepare(folder))["weights_sha256"]


@pytest.mark.parametrize(
    "way", ["torchrun", *(pytest.param(way, marks=pytest.mark.tail) for way in WAYS if way != "torchrun")]
)
def test_one_run_with_the_same_bits(tmp_path: Path, usual: str, way: str) -> None:
    if way not in ("torchrun", "launch"):
        require("horovod" if "horovod" in way else "mpirun")
    strategy = ["parallel=horovod"] if way.endswith("-horovod") else []
    code, output = ended(run(*WAYS[way], str(RUN), *SMALL, *strategy, cwd=tmp_path))
    assert code == 0, output
    assert "OMP_NUM_THREADS=1 is not used" not in output  # which torchrun sets
    [folder] = runs_below(tmp_path)
    assert [path.parent.parent for path in tmp_path.rglob(".hydra/config.yaml")] == [folder]
    result = RunFolder(folder).read_result()
    assert result is not None
    assert (result["status"], result["world_size"], result["weights_sha256"]) == ("completed", 2, usual)
    code, output = ended(run(sys.executable, "-m", "manyheads.runner", "resume", str(folder), cwd=tmp_path))
    assert "is already complete" in output


@pytest.fixture
def ranks(tmp_path: Path) -> Iterator[list[subprocess.Popen[str]]]:
    """Two ranks of a long run, ended after the test."""
    command = (sys.executable, str(RUN), *LONG, f"hydra.run.dir={tmp_path / 'run'}")
    processes = [run(*command, cwd=tmp_path, **by_mpi(rank)) for rank in range(2)]
    yield processes
    for process in processes:
        process.kill()
        process.wait()


def wait_for_checkpoint(folder: Path, process: subprocess.Popen[str], seconds: float = 200) -> None:
    deadline = time.monotonic() + seconds
    while not list(folder.rglob("last.pt")):
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_a_signal_leaves_a_checkpoint(tmp_path: Path, ranks: list[subprocess.Popen[str]]) -> None:
    folder = RunFolder(tmp_path / "run")
    wait_for_checkpoint(folder.path, ranks[0])
    for process in reversed(ranks):
        process.terminate()
    endings = [ended(process) for process in ranks]
    assert [code for code, _ in endings] == [143, 0], endings[0][1] + (folder.logs / "rank_1.log").read_text()[-1500:]
    result = folder.read_result() or {}
    assert (result["status"], result["signal"]) == ("interrupted", signal.SIGTERM)


@pytest.mark.tail
def test_the_same_command_resumes_and_a_dead_rank_is_named(tmp_path: Path, ranks: list[subprocess.Popen[str]]) -> None:
    folder = RunFolder(tmp_path / "run")
    wait_for_checkpoint(folder.path, ranks[0])
    for process in ranks:
        process.kill()
        process.communicate()
    reached = len(rows(folder.steps))
    command = (sys.executable, str(RUN), *LONG, f"hydra.run.dir={folder.path}")
    again = [run(*command, cwd=tmp_path, **by_mpi(rank)) for rank in range(2)]  # as a queue would start it again
    while len(rows(folder.steps)) <= reached:
        assert again[0].poll() is None, again[0].communicate()
        time.sleep(0.05)
    again[1].kill()
    code, output = ended(again[0])
    assert code == 1, output
    assert "resuming from step" in output
    failure = (folder.read_result() or {})["error"]
    assert failure is not None
    assert failure["rank"] == 1, failure
    again[1].communicate()


def test_a_refused_run_ends_all_ranks_and_leaves_nothing(tmp_path: Path) -> None:
    command = (sys.executable, str(RUN), "model=mlp", "model.nope=1")
    processes = [run(*command, cwd=tmp_path, **by_mpi(rank)) for rank in range(2)]
    first, second = map(ended, processes)
    assert (first[0], second[0]) == (2, 2)
    assert first[1].count("error: model.nope is not a key") == 1
    assert second[1] == ""
    assert list(tmp_path.iterdir()) == []


@pytest.mark.tail
@pytest.mark.parametrize("dead", [0, 1])
def test_a_dead_rank_ends_the_run_and_is_named(tmp_path: Path, dead: int) -> None:
    agent = run(*TORCHRUN, str(RUN), *LONG, cwd=tmp_path)
    wait_for_checkpoint(tmp_path, agent)
    [folder] = map(RunFolder, runs_below(tmp_path))
    os.kill(Heartbeat(folder.heartbeat).pid(dead), signal.SIGKILL)
    code, output = ended(agent)
    assert code == 1, output
    result = folder.read_result() or {}
    assert (result["status"], result["error"]["rank"], result["error"]["kind"]) == ("failed", dead, "ProcessDied")
    assert "torchrun has printed" in result["error"]["message"]
    assert "Signal 9 (SIGKILL)" in output
    listed = ended(run(sys.executable, "-m", "manyheads.runner", "list", cwd=tmp_path))
    assert "failed" in listed[1]


@pytest.mark.tail
@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGKILL])
def test_a_signal_to_torchrun_leaves_a_checkpoint_and_no_process(tmp_path: Path, signum: int) -> None:
    agent = run(*TORCHRUN, str(RUN), *LONG, cwd=tmp_path)
    wait_for_checkpoint(tmp_path, agent)
    [folder] = map(RunFolder, runs_below(tmp_path))
    agent.send_signal(signum)
    code, output = ended(agent)
    assert code == (1 if signum == signal.SIGTERM else -signum), output
    deadline = time.monotonic() + 30
    while survivors(folder):
        assert time.monotonic() < deadline
        time.sleep(0.1)
    result = folder.read_result()
    assert result is None if signum == signal.SIGKILL else (result or {})["status"] == "interrupted"
    assert folder.last_checkpoint.exists()


@pytest.mark.tail
def test_a_rank_0_that_dies_before_all_have_joined_is_named(tmp_path: Path, ranks: list[subprocess.Popen[str]]) -> None:
    while b"foreign.follower" not in Path(f"/proc/{ranks[1].pid}/cmdline").read_bytes():  # it has the run
        assert ranks[1].poll() is None, ranks[1].communicate()
        time.sleep(0.01)
    ranks[0].kill()
    folder, deadline = RunFolder(tmp_path / "run"), time.monotonic() + 60
    while folder.read_result() is None:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    ranks[1].kill()
    for process in ranks:
        process.communicate()
    result = folder.read_result() or {}
    assert (result["status"], result["error"]["rank"], result["error"]["kind"]) == ("failed", 0, "ProcessDied")


@pytest.mark.tail
@pytest.mark.parametrize("dead", [0, 1])
def test_torchrun_restarts_the_run_in_its_folder_and_each_sample_is_taken_once(tmp_path: Path, dead: int) -> None:
    agent = run(*TORCHRUN, "--max-restarts", "3", str(RUN), *LONG, cwd=tmp_path)
    wait_for_checkpoint(tmp_path, agent)
    [folder] = map(RunFolder, runs_below(tmp_path))
    os.kill(Heartbeat(folder.heartbeat).pid(dead), signal.SIGKILL)
    code, output = ended(agent)
    assert code == 0, output
    assert "resuming from step" in output
    assert runs_below(tmp_path) == [folder.path]
    assert (folder.read_result() or {})["status"] == "completed"
    audit = (sys.executable, "-m", "manyheads.runner", "audit", str(folder.path), "--records")
    code, output = ended(run(*audit, cwd=tmp_path))
    assert code == 0, output
    assert "updates 1 to 1,740" in output
    assert "each epoch took each of its samples exactly once" in output
