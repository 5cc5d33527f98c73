"""What docs/security.md says of the ports of a run on several machines, seen in a real one."""

import os
import re
import socket
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from tests.launchers.conftest import PROJECT
from tests.launchers.nodes.conftest import ENDLESS, gone

LISTENS = "0A"
STRANGER = """
import socket, sys
from manyheads.launchers.nodes.wire import KEY_BYTES, greet
try:
    greet(socket.create_connection((sys.argv[1], int(sys.argv[2])), timeout=5), b"o" * KEY_BYTES)
except OSError as error:
    print("refused:", error)
"""


def listening(process: psutil.Process) -> list[tuple[str, int]]:
    """Addresses and ports on which a process listens in its own network namespace."""
    own, found = set(), []
    for entry in Path(f"/proc/{process.pid}/fd").iterdir():
        with suppress(FileNotFoundError):
            own |= set(re.findall(r"socket:\[(\d+)\]", os.readlink(entry)))
    for table, family in (("tcp", socket.AF_INET), ("tcp6", socket.AF_INET6)):
        for line in Path(f"/proc/{process.pid}/net/{table}").read_text().splitlines()[1:]:
            _, local, _, state, *rest = line.split()
            if state == LISTENS and rest[5] in own:
                address, port = local.split(":")
                words = [bytes.fromhex(address[i : i + 8])[::-1] for i in range(0, len(address), 8)]
                found.append((socket.inet_ntop(family, b"".join(words)), int(port, 16)))
    return found


@pytest.mark.processes
@pytest.mark.tail
@pytest.mark.timeout(300)
def test_who_listens_and_whom_it_lets_in(cluster, run_on) -> None:
    running = run_on("run", *ENDLESS, "parallel=ddp", "launcher=torchrun", cluster.hosts(1))
    running.wait_for_step(6)
    for node in cluster.nodes:
        assert listening(running.find(node, "launchers.nodes.node_agent")) == []
        assert {address for address, _ in listening(running.find(node, "manyheads: rank"))} <= {cluster.address(node)}
    assert listening(running.find(2, "torch.distributed.run")) == []
    assert {address for address, _ in listening(running.find(1, "torch.distributed.run"))} <= {"::", "0.0.0.0"}
    [(address, port)] = listening(running.find(1, "run.py"))
    assert address == cluster.address(1)
    key = running.folder.logs / "nodes.key"
    assert key.stat().st_mode & 0o777 == 0o600
    stranger = cluster.on(2, sys.executable, "-c", STRANGER, address, str(port))
    said = subprocess.run(stranger, cwd=PROJECT, capture_output=True, text=True, timeout=60)
    assert said.stdout.startswith("refused: "), said
    running.wait_for_step(running.last_step() + 20)
    running.find(1, "run.py").terminate()
    assert running.end(60) == 143, running.text()
    assert not key.exists()
    gone(cluster, seconds=5)
