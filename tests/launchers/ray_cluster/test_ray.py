"""Runs on a real Ray cluster: the numbers of one machine, and what follows when a process dies."""

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from manyheads.launchers.launch import launch, prepare
from manyheads.runner.errors import ConfigurationError, RunFailed
from manyheads.runner.run.ledger import Ledger
from manyheads.runner.run.run_folder import RunFolder
from tests.launchers.conftest import PROJECT, freeze, rows
from tests.launchers.ray_cluster.conftest import LONG, RUN, free, on, ours, rank_of, when_at
from tests.tail import tail

pytestmark = [pytest.mark.processes, pytest.mark.filterwarnings("ignore")]


@pytest.mark.parametrize("placement", [tail("STRICT_SPREAD"), tail("PACK")])
def test_it_gives_the_bits_of_ranks_on_one_machine_and_leaves_nothing(machines, tmp_path, placement, capfd):
    here = freeze(tmp_path / "here", *RUN, "trainer.max_steps=50", "parallel=ddp")
    there = freeze(tmp_path / "there", *RUN, "trainer.max_steps=50", *on(machines, f"launcher.placement={placement}"))
    expected = launch(prepare(here))["weights_sha256"]
    capfd.readouterr()
    launch(prepare(there))
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
        agent = next(each for each in rank.parents() if "launchers.nodes.node_agent" in " ".join(each.cmdline()))
        {"rank": rank, "agent": agent, "worker": agent.parent()}[what].send_signal(signal.SIGKILL)

    when_at(folder, 50, kill)
    launch(prepare(folder))
    result = folder.read_result()
    assert len(result["restarts"]) == 1
    assert result["weights_sha256"] == undisturbed[1]["weights_sha256"]
    assert ours(folder) == []


@pytest.mark.tail
def test_without_restarts_a_kill_ends_the_run_and_names_the_machine(machines, tmp_path):
    folder = freeze(tmp_path / "run", *LONG, *on(machines))
    when_at(folder, 20, lambda: rank_of(folder, 1).send_signal(signal.SIGKILL))
    with pytest.raises(RunFailed, match=r"rank 1 on machine bundle-1 .* failed first"):
        launch(prepare(folder))
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
        launch(prepare(folder))
    assert folder.read_result()["status"] == "failed"


def test_without_a_cluster_the_error_says_how_to_get_one(tmp_path):
    folder = freeze(tmp_path / "run", *RUN, "parallel=ddp", "launcher=ray", "launcher.address=127.0.0.1:9")
    with pytest.raises(ConfigurationError, match=r"ray start --head"):
        launch(prepare(folder))


@pytest.mark.tail
@pytest.mark.parametrize("jobs", ["4", "auto"])
def test_a_sweep_uses_what_is_free_in_the_cluster(machines, parent, tmp_path, jobs):
    options = ("launcher.nodes=1", "launcher.threads_per_rank=1", "trainer.max_steps=200")
    sweep = ("seed=1,2,3,4", f"hydra.launcher.jobs={jobs}", f"hydra.sweep.dir={tmp_path / 'sweep'}")
    run = parent(tmp_path / "sweep", "-m", *RUN, *on(machines, *options), *sweep)
    begun, training = set[int](), set[int]()
    while run.process.poll() is None:
        entries = Ledger(tmp_path / "sweep").entries() if (tmp_path / "sweep" / "ledger.jsonl").exists() else []
        begun.add(sum(entry.state == "running" for entry in entries))
        training.add(len(ranks_below(tmp_path)))
        time.sleep(0.1)
    code, text = run.end()
    assert code == 0, text
    assert max(training) == 2  # as many as the cluster has CPUs
    assert max(begun) == (4 if jobs == "4" else 3)  # auto: one waits
    assert [entry.state for entry in Ledger(tmp_path / "sweep").entries()] == ["completed"] * 4
    assert free(machines.address) == 2


def ranks_below(folder: Path) -> set[str]:
    """The titles of the ranks of all runs below a folder; what a rank forks has its title for a moment."""
    titles = (" ".join(each.info["cmdline"]) for each in ours(RunFolder(folder)))
    return {title for title in titles if "manyheads: rank " in title}


@pytest.mark.tail
def test_its_workers_import_nothing_from_the_working_directory(machines, tmp_path, monkeypatch):
    here = tmp_path / "here"
    here.mkdir()
    for name in ("sitecustomize", "usercustomize", "ray", "grpc", "google", "joblib", "cloudpickle", "optuna"):
        (here / f"{name}.py").write_text(f"import pathlib\npathlib.Path({str(here)!r}, 'mark').touch()\n")
    monkeypatch.chdir(here)
    launch(prepare(freeze(tmp_path / "run", *on(machines, *RUN, "trainer.max_steps=2"))))
    assert not (here / "mark").exists()
