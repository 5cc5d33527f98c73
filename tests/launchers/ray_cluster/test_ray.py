"""Runs on a real Ray cluster: the numbers of one machine, and what follows when a rank or a machine is gone."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import psutil
import pytest

from manyheads.launchers.launch import launch
from manyheads.runner.run.errors import ConfigurationError, RunFailed
from manyheads.runner.run.run_folder import RunFolder
from tests.conftest import execute
from tests.launchers.conftest import PROJECT, freeze, rows
from tests.launchers.ray_cluster.cluster import cluster
from tests.tail import tail

pytest.importorskip("ray")
pytestmark = [pytest.mark.processes, pytest.mark.filterwarnings("ignore")]

RUN = ("data.batch_size=48", "model.width=8", "precision=fp64", "trainer.log_every=1")
LONG = (*RUN, "trainer.epochs=10", "checkpoint.every=20")


@pytest.fixture(scope="module")
def machines() -> Iterator[Any]:
    """Two nodes with a CPU each."""
    with cluster(nodes=2) as made:
        yield made


def on(machines: Any, *overrides: str) -> tuple[str, ...]:
    """Overrides for a rank on each of two nodes."""
    ray = ("parallel=ddp", "launcher=ray", "launcher.nodes=2", "launcher.nproc_per_node=1")
    return (*ray, f"launcher.address={machines.address}", *overrides)


def free(address: str) -> dict[str, float]:
    """What is free in the cluster, as Ray says from a process of its own."""
    script = f"""import ray
ray.init(address={address!r}, log_to_driver=False, logging_level="ERROR")
print(ray.available_resources().get("CPU", 0))"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    return float(done.stdout.strip().splitlines()[-1])


def ours(folder: RunFolder) -> list[psutil.Process]:
    """Processes whose command line names the run's folder."""
    found = []
    for process in psutil.process_iter(["cmdline"]):
        with suppress(psutil.NoSuchProcess):
            if str(folder.path) in " ".join(process.info["cmdline"] or []) and process.pid != os.getpid():
                found.append(process)
    return found


def rank_of(folder: RunFolder, rank: int) -> psutil.Process:
    """The process of a rank, by its title."""
    title = f"manyheads: rank {rank}/"
    return next(each for each in ours(folder) if title in " ".join(each.cmdline()))


def when_at(folder: RunFolder, step: int, act: Callable[[], None]) -> threading.Thread:
    """Do this in the background once the run has made so many updates."""

    def watch() -> None:
        while True:
            time.sleep(0.05)
            with suppress(OSError, IndexError, ValueError, StopIteration):
                if int(rows(folder.steps)[-1]["step"]) >= step:
                    act()
                    return

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    return thread


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> tuple[RunFolder, dict[str, Any]]:
    """The long run by ranks on this machine alone."""
    folder = freeze(tmp_path_factory.mktemp("undisturbed") / "run", *LONG, "parallel=ddp")
    return folder, launch(folder)


@pytest.mark.parametrize("placement", [tail("STRICT_SPREAD"), tail("PACK")])
def test_it_gives_the_bits_of_ranks_on_one_machine_and_leaves_nothing(machines, tmp_path, placement, capfd):
    here = freeze(tmp_path / "here", *RUN, "trainer.max_steps=50", "parallel=ddp")
    there = freeze(tmp_path / "there", *RUN, "trainer.max_steps=50", *on(machines, f"launcher.placement={placement}"))
    expected = launch(here)["weights_sha256"]
    capfd.readouterr()
    launch(there)
    result = there.read_result()
    assert result["weights_sha256"] == expected
    assert rows(there.steps) == rows(here.steps)
    assert [each["ranks"] for each in result["nodes"]] == [1, 1]
    out, err = capfd.readouterr()
    assert "epoch 1/" in out
    assert "ray" not in err.lower()
    assert ours(there) == []
    assert free(machines.address) == 2


@pytest.mark.tail
@pytest.mark.parametrize("what", ["rank", "agent", "worker"])
def test_after_a_kill_it_begins_again_from_the_checkpoint(machines, undisturbed, tmp_path, what):
    folder = freeze(tmp_path / "run", *LONG, *on(machines, "launcher.max_restarts=1"))

    def kill() -> None:
        rank = rank_of(folder, 1)
        agent = next(each for each in rank.parents() if "launchers.nodes.agent" in " ".join(each.cmdline()))
        {"rank": rank, "agent": agent, "worker": agent.parent()}[what].send_signal(signal.SIGKILL)

    when_at(folder, 50, kill)
    launch(folder)
    result = folder.read_result()
    assert len(result["restarts"]) == 1
    assert result["weights_sha256"] == undisturbed[1]["weights_sha256"]
    assert ours(folder) == []


@pytest.mark.tail
def test_a_machine_that_is_gone_is_waited_for(undisturbed, tmp_path, capfd):
    with cluster(nodes=2) as machines:
        folder = freeze(tmp_path / "run", *LONG, *on(machines, "launcher.max_restarts=1"))

        def lose() -> None:
            machines.remove_node(machines.worker_nodes.copy().pop(), allow_graceful=False)
            time.sleep(6)
            machines.add_node(num_cpus=1, num_gpus=0, object_store_memory=80 * 2**20)

        watcher = when_at(folder, 50, lose)
        launch(folder)
        watcher.join()
        result = folder.read_result()
        assert len(result["restarts"]) == 1
        assert "waiting for Ray" in capfd.readouterr().out
        assert result["weights_sha256"] == undisturbed[1]["weights_sha256"]
        assert ours(folder) == []


@pytest.mark.tail
def test_without_restarts_a_kill_ends_the_run_and_names_the_machine(machines, tmp_path):
    folder = freeze(tmp_path / "run", *LONG, *on(machines))
    when_at(folder, 20, lambda: rank_of(folder, 1).send_signal(signal.SIGKILL))
    with pytest.raises(RunFailed, match=r"rank 1 on machine bundle-1 .* failed first"):
        launch(folder)
    assert ours(folder) == []
    assert free(machines.address) == 2


@pytest.mark.tail
@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGKILL])
def test_nothing_is_left_in_ray_when_the_parent_ends(machines, tmp_path, signum):
    folder = RunFolder(tmp_path / "run")
    overrides = (*LONG, *on(machines, "launcher.threads_per_rank=1"), f"hydra.run.dir={folder.path}")
    command = [sys.executable, str(PROJECT / "run.py"), *overrides]
    parent = subprocess.Popen(command, stdout=subprocess.DEVNULL, start_new_session=True)
    when_at(folder, 20, lambda: parent.send_signal(signum)).join(120)
    assert parent.wait(60) in (130, -signal.SIGKILL)
    deadline = time.monotonic() + 20
    while (ours(folder) or free(machines.address) < 2) and time.monotonic() < deadline:
        time.sleep(0.5)
    assert ours(folder) == []
    assert free(machines.address) == 2


@pytest.mark.tail
def test_without_room_it_fails_when_it_was_told_to(machines, tmp_path):
    wants = ("launcher.nodes=3", "launcher.placement_timeout=1", "data.batch_size=48")
    folder = freeze(tmp_path / "run", *RUN, *on(machines, *wants))
    with pytest.raises(RunFailed, match=r"no room for 3 x .*'CPU': 1.*free in the cluster: 2 CPU"):
        launch(folder)
    assert folder.read_result()["status"] == "failed"


def test_without_a_cluster_the_error_says_how_to_get_one(tmp_path):
    folder = freeze(tmp_path / "run", *RUN, "parallel=ddp", "launcher=ray", "launcher.address=127.0.0.1:9")
    with pytest.raises(ConfigurationError, match=r"ray start --head"):
        launch(folder)


@pytest.mark.tail
def test_a_sweep_uses_what_is_free_in_the_cluster(machines, tmp_path):
    jobs = (*("seed=1,2,3", "hydra.launcher.jobs=3"), *on(machines, "launcher.nodes=1", "trainer.max_steps=30"))
    where = f"hydra.sweep.dir={tmp_path / 'sweep'}"
    done = execute(sys.executable, str(PROJECT / "run.py"), "-m", *RUN, *jobs, where, cwd=tmp_path, timeout=240)
    assert done.code == 0, done.err
    assert len(list((tmp_path / "sweep").glob("*/result.json"))) == 3
    assert free(machines.address) == 2
