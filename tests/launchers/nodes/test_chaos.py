"""Ranks, agents, links and the parent are hurt at random, and ``resume`` goes on: the bits stay those of a quiet run.

``make chaos`` does so for ten minutes; MANYHEADS_CHAOS_SEED repeats a sequence.
"""

import os
import random
import time

import pytest

from manyheads.launchers.launch import launch
from tests.launchers.conftest import freeze, rows
from tests.launchers.nodes.cluster import started
from tests.launchers.nodes.conftest import COMMON, gone, runs

SECONDS = float(os.environ.get("MANYHEADS_CHAOS_SECONDS", "60"))
SEED = int(os.environ.get("MANYHEADS_CHAOS_SEED", "20260131"))
NODES = 3
RUN = (
    *("parallel=ddp", "parallel.timeout=10", "launcher=torchrun", "launcher.node_timeout=4", "trainer.log_every=5"),
    *("trainer.evaluate_every=0", "checkpoint.every=20"),
)


def hurt(running, chance: random.Random) -> str:
    """Do something bad; says what."""
    cluster, node = running.cluster, chance.randrange(1, NODES + 1)
    kind = chance.choice(["rank", "rank", "stopped rank", "agent", "torchrun", "link", "parent", "node"])
    if kind == "link":
        cluster.cut(node)
    elif kind == "node":
        cluster.kill(node)
    elif kind == "parent":
        running.find(1, running.parent).kill()
    elif kind == "stopped rank":
        running.find(node, "manyheads: rank").suspend()
    else:
        text = {"rank": "manyheads: rank", "agent": "launchers.nodes.agent", "torchrun": "torch.distributed.run"}[kind]
        running.find(node, text).kill()
    return f"{kind} on node {node}"


@pytest.mark.processes
@pytest.mark.tail
@pytest.mark.timeout(2 * SECONDS + 600)
def test_the_bits_are_those_of_a_quiet_run(tmp_path) -> None:
    chance, events = random.Random(SEED), list[str]()
    length = ("trainer.epochs=100", f"trainer.max_steps={int(200 + 2 * SECONDS)}")
    quiet = freeze(tmp_path / "quiet", *COMMON, *RUN[:2], *RUN[4:], *length, "launcher.nproc_per_node=3")
    expected = launch(quiet)
    with started(tmp_path, NODES) as cluster, runs(cluster, tmp_path) as start:
        running, end = start("run", *RUN, *length, cluster.hosts(1)), time.monotonic() + SECONDS
        while time.monotonic() < end:
            running.wait_for_more()
            time.sleep(chance.uniform(0.0, 3.0))
            if running.process.poll() is not None:
                break
            events.append(f"{hurt(running, chance)} at step {running.last_step()}")
            running.end(60)
            gone(cluster, *cluster.nodes, seconds=30)
            for node in cluster.nodes:
                cluster.mend(node)
            running = start("run", command=("-m", "runner", "resume", str(running.folder.path)))
        print(f"seed {SEED}:", *events, sep="\n")
        assert events
        assert running.end(300) == 0, running.text()
        gone(cluster, *cluster.nodes, seconds=10)
    result = running.folder.read_result()
    assert (result["status"], result["weights_sha256"]) == ("completed", expected["weights_sha256"])
    assert rows(running.folder.steps) == rows(quiet.steps)
    assert not [path for path in running.folder.logs.iterdir() if path.name == "nodes.key" or path.name[0] == "."]
