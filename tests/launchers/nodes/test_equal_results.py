"""Ranks on two machines compute what as many compute on one."""

import pytest
import torch

from manyheads.launchers.launch import launch, prepare
from tests.launchers.conftest import freeze, rows
from tests.launchers.nodes.conftest import COMMON, gone
from tests.tail import tailed

pytestmark = pytest.mark.ci

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
