"""The small parts of a run on several machines, each without a network."""

import json
import os
import signal
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest

from manyheads.launchers.causes import first_failure
from manyheads.launchers.environment import exported
from manyheads.launchers.job import Job
from manyheads.launchers.node_settings import DEFAULT_SHELL, NodeSettings
from manyheads.launchers.nodes.joining import other_config
from manyheads.launchers.nodes.node_part import rank_variables, shortened
from manyheads.launchers.nodes.node_ranks import NodeRanks
from manyheads.launchers.nodes.run_on_nodes import assign_ranks
from manyheads.launchers.nodes.shared_folder import clear_attempt, storage_token
from manyheads.launchers.nodes.wire import MOST_BYTES
from manyheads.launchers.processes import gone_silently
from manyheads.runner.config.fresh_folder import is_met_elsewhere
from manyheads.runner.errors import ConfigurationError, Failure, Kind, RunFailed
from manyheads.runner.machine import addresses
from manyheads.runner.option.run_config import RunConfig
from manyheads.runner.run import scratch
from manyheads.runner.run.heartbeat import FAILED, PLACE, RUNNING, Heartbeat
from manyheads.runner.run.rank_info import RankInfo
from manyheads.runner.run.run_folder import RunFolder
from tests.in_process import config


class Machine:
    """As much of a node as is asked here."""

    def __init__(self, name: str, **described: object):
        self.name, self.described = name, described

    def __str__(self) -> str:
        return self.name


def settings(**keys: object) -> NodeSettings | None:
    return NodeSettings.of({"nproc_per_node": 2, "node_timeout": 10, "start_timeout": 120, "max_restarts": 0, **keys})


def test_this_machine_alone_has_no_settings():
    assert settings(hosts=["localhost:2"]) is None


def test_settings_of_several_machines():
    found = settings(hosts=["node1:2", "node2:2"], max_restarts=1)
    assert found is not None
    assert (found.hosts, found.fewest, found.most, found.per_node) == (["node1", "node2"], 2, 2, 2)
    assert (found.shell, found.max_restarts) == (DEFAULT_SHELL, 1)


@pytest.mark.parametrize(
    ("batch", "machines", "ranks"),
    [(48, 3, [2, 2, 2]), (48, 4, [2, 2, 2, 2]), (40, 3, [2, 2, 1]), (49, 3, [1]), (48, 1, [2])],
)
def test_as_many_ranks_as_can_share_the_batch(
    tmp_path: Path, capsys, batch: int, machines: int, ranks: list[int]
) -> None:
    given = config("parallel=ddp", "launcher=torchrun", f"data.batch_size={batch}", "launcher.nproc_per_node=1")
    job = Job(RunFolder(tmp_path), 8, {}, Heartbeat(None, ranks=8), [], run=RunConfig.of(given))
    found = settings(nodes=f"1:{machines}", rendezvous="node1:29400")
    assert found is not None
    nodes = [Machine(f"node{number}") for number in range(machines)]
    shares = assign_ranks(nodes, found, job)  # type: ignore[arg-type]
    assert [len(share.ranks) for share in shares] == ranks
    assert [rank for share in shares for rank in share.ranks] == list(range(sum(ranks)))
    said = f"{sum(ranks)} of {2 * machines} ranks" if sum(ranks) < 2 * machines else ""
    assert capsys.readouterr().out.startswith(said)


def test_configs_are_compared_by_key():
    own = {"optimizer.lr": "a", "optimizer.momentum": "b", "launcher.threads_per_rank": "c", "seed": "d"}
    theirs = {"optimizer.lr": "e", "optimizer.momentum": "b", "launcher.threads_per_rank": "f"}
    assert other_config(Machine("node2", signature=own), own) is None  # type: ignore[arg-type]
    assert other_config(Machine("node2", signature=None), own) is None  # type: ignore[arg-type]
    said = other_config(Machine("node2", signature=theirs), own)  # type: ignore[arg-type]
    assert said == "node2 was given a different config from the run's parent: optimizer.lr, seed. " + (
        "Type the same command on all machines."
    )


@pytest.mark.parametrize(
    ("text", "expected"),
    [("node1:29400", ("node1", 29400)), ("[fd77::1]:1", ("fd77::1", 1)), ("10.0.0.1:65535", ("10.0.0.1", 65535))],
)
def test_where_machines_meet(text, expected):
    assert addresses.parse_endpoint("launcher.rendezvous", text) == expected


@pytest.mark.parametrize("text", ["node1", "node1:0", "node1:65536", "fd77::1:29400", ":29400", "node1:port"])
def test_where_none_can_meet(text):
    with pytest.raises(ConfigurationError, match=r"^launcher\.rendezvous=.* Allowed: name:port or \[address\]:port"):
        addresses.parse_endpoint("launcher.rendezvous", text)


def test_names_and_interfaces_that_are_not_there():
    with pytest.raises(
        ConfigurationError, match=r"^launcher\.hosts: no\.such\.machine\.invalid cannot be resolved here"
    ):
        addresses.resolved("launcher.hosts", "no.such.machine.invalid")
    with pytest.raises(ConfigurationError, match=r"^launcher\.network_interface=eth99: .* Its interfaces: .*lo"):
        addresses.own_address("eth99")
    assert addresses.own_address("lo") == "127.0.0.1"
    assert addresses.is_own("127.0.1.1")
    assert addresses.is_loopback("::1")
    assert not addresses.is_own("192.0.2.1")


DETECTED = {"GLOO_SOCKET_IFNAME": "eth0", "NCCL_SOCKET_IFNAME": "eth0"}
ALLOCATED = {"SLURM_JOB_ID": "7"}


@pytest.mark.parametrize(
    ("typed", "of_node", "expected"),
    [
        ({}, {}, DETECTED),
        ({"NCCL_SOCKET_IFNAME": "ib0"}, {}, {**DETECTED, "NCCL_SOCKET_IFNAME": "ib0"}),
        ({}, {"NCCL_SOCKET_IFNAME": "ib1"}, {**DETECTED, "NCCL_SOCKET_IFNAME": "ib1"}),
        ({"NCCL_SOCKET_IFNAME": "ib0"}, {"NCCL_SOCKET_IFNAME": "ib1"}, {**DETECTED, "NCCL_SOCKET_IFNAME": "ib1"}),
        ({"CUDA_VISIBLE_DEVICES": "2,3"}, {}, {**DETECTED, "CUDA_VISIBLE_DEVICES": "2,3"}),
        ({"CUDA_VISIBLE_DEVICES": "2,3"}, {"CUDA_VISIBLE_DEVICES": "0,1"}, {**DETECTED, "CUDA_VISIBLE_DEVICES": "0,1"}),
        ({"CUDA_VISIBLE_DEVICES": "GPU-1"}, ALLOCATED, {**DETECTED, "CUDA_VISIBLE_DEVICES": None}),
        ({"PYTORCH_ALLOC_CONF": "a:1"}, {}, {**DETECTED, "PYTORCH_ALLOC_CONF": "a:1"}),
        ({"UCX_NET_DEVICES": "mlx5_0:1"}, {}, {**DETECTED, "UCX_NET_DEVICES": "mlx5_0:1"}),
        ({"FI_PROVIDER": "efa"}, {}, {**DETECTED, "FI_PROVIDER": "efa"}),
        ({"OFI_NCCL_PROTOCOL": "RDMA"}, {}, {**DETECTED, "OFI_NCCL_PROTOCOL": "RDMA"}),
        (
            {"IBV_FORK_SAFE": "1", "RDMAV_FORK_SAFE": "1"},
            {},
            {**DETECTED, "IBV_FORK_SAFE": "1", "RDMAV_FORK_SAFE": "1"},
        ),
        ({"LD_PRELOAD": "x"}, {}, {**DETECTED, "LD_PRELOAD": None}),
    ],
)
def test_ranks_of_another_machine_get_what_the_user_set_and_the_machine_has_itself(
    monkeypatch, typed, of_node, expected
):
    """``typed``: before the command; ``of_node``: in the environment of the agent, which ssh or Slurm has started."""
    names = {*typed, *of_node, *expected}
    for name in names:
        monkeypatch.delenv(name, raising=False)
    for name, value in typed.items():
        monkeypatch.setenv(name, value)
    sent = exported({})
    for name in names:
        monkeypatch.delenv(name, raising=False)
    for name, value in of_node.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(addresses, "interface_of", lambda address: "eth0")
    ranks = {**os.environ, **rank_variables(sent, address="10.0.0.2")}
    assert {name: ranks.get(name) for name in expected} == expected


def test_a_rendezvous_elsewhere_is_another_machines_run():
    assert is_met_elsewhere({"rendezvous": "192.0.2.1:29400"})
    assert not is_met_elsewhere({"rendezvous": "127.0.0.1:29400"})
    assert not is_met_elsewhere({})


def test_the_folder_of_a_node_that_was_killed_is_swept(tmp_path: Path) -> None:
    """And one whose agent lives is not."""
    code = (
        "import os, sys; from pathlib import Path; from manyheads.runner.run.scratch import own_folder\n"
        "with own_folder(Path(sys.argv[1])): print(flush=True); sys.stdin.read()\n"
    )
    dead, alive = (tmp_path / f"manyheads-{digit * 16}-0" for digit in "ab")
    other = tmp_path / "manyheads-of-somebody-else"
    other.mkdir()
    command = [sys.executable, "-c", code, str(dead)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        assert dead.stat().st_mode & 0o777 == 0o700
        process.kill()
    with scratch.own_folder(alive):
        assert not dead.exists()
        scratch.sweep(tmp_path)
        assert alive.exists()
    assert [path.name for path in tmp_path.iterdir()] == [other.name]


def test_a_folder_is_kept_as_long_as_a_process_has_it(tmp_path: Path, monkeypatch) -> None:
    """A publisher has, which may outlive a parent that was killed."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    code = (
        "import os, signal, subprocess; from manyheads.runner.run import scratch\n"
        "with scratch.folder() as own:\n"
        "    lock = scratch.kept(own)\n"
        "    print(subprocess.Popen(['sleep', '60'], pass_fds=[lock], stdout=subprocess.DEVNULL).pid, flush=True)\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE)
    assert done.returncode == -signal.SIGKILL
    (folder,) = tmp_path.iterdir()
    scratch.sweep(tmp_path)
    assert folder.exists()
    publisher = psutil.Process(int(done.stdout))
    publisher.kill()
    psutil.wait_procs([publisher], timeout=10)
    scratch.sweep(tmp_path)
    assert not folder.exists()


def test_a_fork_that_drops_what_it_inherited_leaves_the_folder(tmp_path: Path, monkeypatch) -> None:
    folder = tmp_path / f"manyheads-{'a' * 16}-0"
    inherited = scratch.own_folder(folder)
    inherited.__enter__()
    monkeypatch.setattr(os, "getpid", lambda: 1)
    del inherited
    assert folder.exists()


def test_ranks_of_a_node_share_a_heartbeat(tmp_path: Path, monkeypatch) -> None:
    """Found by the first rank of the node, so that one variable is right on all machines."""
    monkeypatch.setenv(PLACE, f"{tmp_path}/manyheads-1-")
    heartbeat = Heartbeat.create(tmp_path / "manyheads-1-4" / "heartbeat", ranks=8)
    Heartbeat.of_rank(RankInfo(5, 1, 8), tmp_path / "nowhere").enter()
    assert [bool(heartbeat.pid(rank)) for rank in range(8)] == [rank == 5 for rank in range(8)]
    parents = Heartbeat(None, ranks=8)
    parents.write(5, heartbeat.read(5))
    assert (parents.state(5), parents.pid(5)) == (heartbeat.state(5), 0)


def told(reports: list[dict], rank: int) -> dict:
    return {"is": "status", "words": {str(rank): [5, FAILED, 4242, 7]}, "gone": [], "reports": reports}


def test_how_ranks_failed_is_told_by_their_machines(tmp_path: Path) -> None:
    """And needs no disk that they share: a machine speaks of its own ranks only, and the first word counts."""
    job = Job(RunFolder(tmp_path / "gone"), 2, {}, Heartbeat(None, ranks=2), [])
    first, second = (Machine(name) for name in ("node1", "node2"))
    shares = {first: range(1), second: range(1, 2)}
    ranks = NodeRanks(SimpleNamespace(), job, shares, attempt=0, silence=5)  # type: ignore[arg-type]
    job = replace(job, reports=ranks.reports)
    began = Failure(rank=0, exit_code=1, type="OSError", message="[Errno 30] Read-only file system")
    went = Failure(Kind.LOST_PEER, rank=1, exit_code=1, type="RuntimeError", message="closed by peer")
    consequence, cause = {**went.to_json(), "time": 2.0}, {**began.to_json(), "time": 1.0}
    forged = {**cause, "time": 0.0, "message": "not its own"}
    ranks._take(second, told([consequence, forged], 1))  # type: ignore[arg-type]
    assert job.failures() == [went]
    ranks._take(first, told([cause], 0))  # type: ignore[arg-type]
    ranks._take(first, told([forged], 0))  # type: ignore[arg-type]
    assert job.failures() == [began, went]
    assert first_failure(job, {}, silent=[]) == began


def test_a_message_holds_what_all_ranks_of_a_machine_said():
    long = {
        **Failure(rank=0, type="OSError", message="x" * 10**6, traceback="a" * 10**6 + "end").to_json(),
        "time": 1.0,
    }
    reports = shortened([{**long, "rank": rank} for rank in range(8)])
    assert len(json.dumps(reports)) < MOST_BYTES / 4
    assert all(report["traceback"].endswith("end") for report in reports)


def test_a_parent_whose_disk_is_gone_says_so(tmp_path: Path) -> None:
    """A restart waits for it, and makes no folder in its place."""
    job = Job(RunFolder(tmp_path / "run"), 1, {}, Heartbeat(None, ranks=1), [])
    with pytest.raises(RunFailed, match=r"the run's parent cannot write to .*run: No such file or directory"):
        clear_attempt(job, 0.0)
    with pytest.raises(RunFailed, match=r"cannot write to .*run: No such file or directory"), storage_token(job):
        pytest.fail("it went on")
    assert not job.folder.path.exists()
    waiting = threading.Thread(target=clear_attempt, args=(job, 10.0))
    waiting.start()
    job.folder.write_config({})
    waiting.join(5)
    assert job.folder.logs.is_dir()


def test_a_rank_that_went_with_what_had_started_it_is_named(tmp_path: Path) -> None:
    """Its agent knows it when all there is over; the ranks elsewhere that miss it have reported by then."""
    job = Job(RunFolder(tmp_path), 2, {}, Heartbeat(None, ranks=2), [])
    first, second = (Machine(name) for name in ("node1", "node2"))
    shares = {first: range(1), second: range(1, 2)}
    ranks = NodeRanks(SimpleNamespace(), job, shares, attempt=0, silence=5)  # type: ignore[arg-type]
    died = Failure(Kind.PROCESS_DIED, rank=1, message="its process disappeared without reporting an error")
    ended = {"is": "ended", "attempt": 0, "port": 1, "codes": {}, "failure": died.to_json()}
    ranks._take(first, {"is": "status", "words": {"0": [5, FAILED, 4242, 7]}, "gone": []})  # type: ignore[arg-type]
    ranks._take(second, {**ended, "words": {"1": [5, RUNNING, 4243, 7]}})  # type: ignore[arg-type]
    assert gone_silently(ranks.exit_codes(), job) == [1]
    assert job.heartbeat.state(0) == FAILED
