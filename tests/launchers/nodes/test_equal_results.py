"""Ranks on two machines compute what as many compute on one."""

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from manyheads.launchers.launch import launch, prepare
from tests.launchers.conftest import freeze, rows
from tests.launchers.nodes.conftest import COMMON, gone
from tests.tail import tailed

STEPS = ("trainer.max_steps=40", "trainer.log_every=1", "precision=fp64", "optimizer.lr=0.1")


@pytest.mark.processes
@pytest.mark.timeout(400)
@pytest.mark.parametrize(("strategy", "each"), tailed([("ddp", 1), ("ddp", 2), ("fsdp", 2)], always=[("ddp", 1)]))
def test_two_machines_compute_what_one_does(cluster, run_on, tmp_path, strategy: str, each: int) -> None:
    running = run_on("two", *STEPS, f"parallel={strategy}", "launcher=torchrun", cluster.hosts(each))
    one = freeze(tmp_path / "one", *COMMON, *STEPS, f"parallel={strategy}", f"launcher.nproc_per_node={2 * each}")
    expected = launch(prepare(one))
    assert running.end() == 0, running.text()
    result = running.folder.read_result()
    assert result["weights_sha256"] == expected["weights_sha256"]  # the layout is the same
    losses, others = ([float(row["loss"]) for row in rows(folder.steps)] for folder in (one, running.folder))
    assert len(losses) == 40
    assert losses[-1] < losses[0]
    assert others == pytest.approx(losses, rel=1e-9)
    assert (result["world_size"], [node["ranks"] for node in result["nodes"]]) == (2 * each, [each] * 2)
    assert [node["node"] for node in result["nodes"]] == ["10.77.0.1 (node1)", "10.77.0.2 (node2)"]
    assert list(rows(running.folder.epochs)) == list(rows(one.epochs))
    weights, same = (torch.load(f.last_checkpoint, weights_only=True)["model"] for f in (one, running.folder))
    assert all(torch.equal(value, same[name]) for name, value in weights.items())
    assert not [path for path in running.folder.logs.iterdir() if path.suffix == ".key" or path.name[0] == "."]
    gone(cluster, 1, 2, seconds=5)


WAYS = {
    "horovodrun": ("parallel=horovod", "launcher=horovodrun"),
    "mpirun": ("parallel=ddp", "launcher=mpirun"),
    "horovod-mpirun": ("parallel=horovod", "launcher=mpirun"),
}


@pytest.fixture
def foreign_sessions() -> Iterator[None]:
    """What another user put where Open MPI would have its folder by itself, on each machine."""
    paths = [Path(tempfile.gettempdir(), f"ompi.node{node}.{os.getuid()}") for node in (1, 2)]
    for path in paths:
        path.touch()
    yield
    for path in paths:
        path.unlink()


@pytest.mark.processes
@pytest.mark.tail
@pytest.mark.timeout(400)
@pytest.mark.parametrize("way", WAYS)
def test_programs_that_start_ranks_elsewhere_do_so_through_agents(
    named_cluster, run_there, tmp_path, foreign_sessions, way: str
) -> None:
    running = run_there("two", *STEPS, *WAYS[way], named_cluster.hosts(2))
    one = freeze(tmp_path / "one", *COMMON, *STEPS, *WAYS[way], "launcher.nproc_per_node=4")
    expected = launch(prepare(one))
    assert running.end() == 0, running.text()
    assert "epoch 1/" in running.text()  # rank 0 speaks on the terminal
    losses, others = ([float(row["loss"]) for row in rows(each.steps)] for each in (one, running.folder))
    assert others == pytest.approx(losses, rel=1e-9)
    assert running.folder.read_result()["weights_sha256"] == expected["weights_sha256"]
    gone(named_cluster, 1, 2, seconds=5)
