"""A user's own mpirun, horovodrun and torchrun on two machines, which are network namespaces; a script stands in for
``ssh``.
"""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from manyheads.launchers.launch import launch, prepare
from manyheads.runner.run.run_folder import RunFolder
from tests.conftest import RUN
from tests.launchers.conftest import freeze
from tests.launchers.nodes.cluster import Cluster, started
from tests.needs import require

pytestmark = [pytest.mark.processes, pytest.mark.tail, pytest.mark.timeout(400)]

SMALL = ("model=mlp", "model.width=8", "data.batch_size=48", "trainer.device=cpu", "trainer.max_steps=20")
SSH = """#!/bin/sh
host=
while :; do
  case $1 in
    -o) shift 2 ;;
    -*) shift ;;
    *) [ -n "$host" ] && break; host=$1; shift ;;
  esac
done
exec {shell} 10.77.0.${{host##*[!0-9]}} "$*"
"""
MPIRUN = ("mpirun", "--allow-run-as-root", "-np", "2", "-H", "node1:1,node2:1", "-x", "MASTER_ADDR=node1")
HOROVODRUN = ("env", "MASTER_ADDR=node1", "horovodrun", "-np", "2", "-H", "node1:1,node2:1")
WAYS = {"mpirun": MPIRUN, "horovodrun": (*HOROVODRUN, "--gloo")}


@pytest.fixture(scope="module")
def machines(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with started(tmp_path_factory.mktemp("machines"), 2, named=True) as cluster:
        (cluster.folder / "ssh").write_text(SSH.format(shell=cluster.shell))
        (cluster.folder / "ssh").chmod(0o700)
        yield cluster


@pytest.fixture(scope="module")
def usual(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The weights of the same run on one machine."""
    ranks = ("launcher.nproc_per_node=2", "launcher.threads_per_rank=1")
    folder = freeze(tmp_path_factory.mktemp("usual") / "run", *SMALL, "parallel=ddp", *ranks)
    return launch(prepare(folder))["weights_sha256"]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("strategy", ["ddp", "horovod"])
def test_one_run_on_two_machines(machines: Cluster, usual: str, tmp_path: Path, way: str, strategy: str) -> None:
    require("mpirun" if (way, strategy) == ("mpirun", "ddp") else "horovod")
    path = os.pathsep.join([str(machines.folder), str(Path(sys.executable).parent), os.environ["PATH"]])
    typed = ("env", f"PATH={path}", *WAYS[way], sys.executable, str(RUN), *SMALL, f"parallel={strategy}")
    done = subprocess.run(
        machines.on(1, *typed, "launcher.threads_per_rank=1"),
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=350,
    )
    assert done.returncode == 0, done.stdout
    [folder] = [path.parent for path in tmp_path.rglob("run.yaml")]
    result = RunFolder(folder).read_result() or {}
    assert (result["status"], result["world_size"], result["weights_sha256"]) == ("completed", 2, usual), done.stdout


@pytest.mark.parametrize("shares", [True, False])
def test_torchrun_finds_the_other_machine_by_its_own_rendezvous(
    machines: Cluster, usual: str, tmp_path: Path, *, shares: bool
) -> None:
    """Also without a folder that both see, of which it then says what is missing."""
    rendezvous = ("--rdzv-backend", "c10d", "--rdzv-endpoint", "node1:29400")
    torchrun = (sys.executable, "-m", "torch.distributed.run", "--nnodes", "2", "--nproc-per-node", "1", *rendezvous)
    typed = (*torchrun, str(RUN), *SMALL, "launcher.threads_per_rank=1")
    hidden = ("sh", "-c", f'mount -t tmpfs none {tmp_path} && cd {tmp_path} && exec "$@"', "sh")
    ranks = [
        subprocess.Popen(
            machines.on(node, *(() if shares or node == 1 else hidden), *typed),
            cwd=tmp_path,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for node in (1, 2)
    ]
    output = "".join(rank.communicate(timeout=350)[0] for rank in ranks)
    assert [rank.returncode for rank in ranks] == [0, 0], output
    [folder] = [path.parent for path in tmp_path.rglob("run.yaml")]
    result = RunFolder(folder).read_result() or {}
    assert (result["status"], result["world_size"], result["weights_sha256"]) == ("completed", 2, usual), output
    assert ("node2 does not see" in output) != shares, output
