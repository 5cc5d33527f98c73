"""``doctor --hosts``: checks whether several machines can run together, and measures how fast they communicate."""

import json
import os
import secrets
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from typing import NamedTuple

from manyheads import __version__
from manyheads.launchers.environment import environment
from manyheads.launchers.job import Job
from manyheads.launchers.launcher import Launcher
from manyheads.launchers.node_settings import DEFAULT_SHELL, NodeSettings
from manyheads.launchers.nodes.gathering import Gathering, called_machines
from manyheads.launchers.nodes.rendezvous import Node
from manyheads.launchers.nodes.run_on_nodes import NodeShare, attempt
from manyheads.launchers.torchrun import order
from manyheads.runner.errors import ConfigurationError, RunFailed
from manyheads.runner.machine.process import received_signals
from manyheads.runner.run.heartbeat import Heartbeat
from manyheads.runner.run.run_folder import RunFolder

RANK = "manyheads.runner.loop.all_reduce"
MEASURED = "all_reduce.json"
ECHOES = 20
CLOCK_SECONDS = 1.0  # tolerated difference between clocks, by which failures are ordered


class HostFinding(NamedTuple):
    """The findings on one machine. ``faults``: why it cannot take part."""

    name: str
    told: dict[str, str]
    faults: list[str]


def examine(
    hosts: list[str], *, shell: str | None, interface: str | None, say: Callable[[str], None]
) -> list[HostFinding]:
    """Start an agent on each host, ask it for its versions and its view of this folder, and time an all-reduce.

    ``say``: receives the sentences about all machines together. Raises ConfigurationError for invalid host names.
    """
    path = Path(tempfile.mkdtemp(prefix="manyheads-doctor-", dir=os.getcwd()))  # noqa: TID251 - all machines see it
    try:
        folder = RunFolder(path)
        folder.write_config({})
        folder.logs.mkdir()
        settings = NodeSettings(
            hosts=hosts,
            rendezvous=None,
            fewest=len(hosts),
            most=len(hosts),
            per_node=1,
            shell=shell or DEFAULT_SHELL,
            interface=interface,
            silence=10.0,
            start_timeout=30.0,
            max_restarts=0,
        )
        machines = called_machines(settings, folder)
        machines.is_lenient = True
        try:
            there = _arrived(machines)
            examined = [_look(name, there.get(name), machines, folder) for name in hosts]
            if not any(machine.faults for machine in examined) and len(hosts) > 1:
                say(_reduced(machines, list(there.values()), folder))
            return examined
        finally:
            machines.close(None)
    finally:
        shutil.rmtree(path, ignore_errors=True)


def _arrived(machines: Gathering) -> dict[str, Node]:
    deadline = time.monotonic() + machines.settings.start_timeout
    while time.monotonic() < deadline:
        nodes, waits = machines.present(0.2)
        if not waits:
            break
    return {node.name: node for node in nodes}


def _look(name: str, node: Node | None, machines: Gathering, folder: RunFolder) -> HostFinding:
    if node is None:
        return HostFinding(
            name, {}, [machines.why(name) or "its agent did not connect; can it reach this machine's port?"]
        )
    faults = []
    told = {key: str(node.described[key]) for key in ("host", "address", "python", "torch", "manyheads")}
    for key, version in (("torch", metadata.version("torch")), ("manyheads", __version__)):
        if told[key] != version:
            faults.append(f"it has {key} {told[key]}, this machine has {version}: install the same version")
    token = secrets.token_hex(8)
    (folder.logs / ".nodes").write_text(token)
    delays, differences, seen = [], [], ""
    for _ in range(ECHOES):
        began, clock = time.perf_counter(), time.time()
        answer = machines.ask(node, {"do": "echo", "path": str(folder.logs / ".nodes")})
        if answer is None:
            return HostFinding(name, told, ["it no longer answers"])
        delays.append(time.perf_counter() - began)
        differences.append(answer["time"] - clock - delays[-1] / 2)
        seen = answer["seen"]
    told["round trip"] = f"{1000 * statistics.median(delays):.2f} ms"
    difference = statistics.median(differences)
    told["clock"] = f"{1000 * difference:+.0f} ms"
    if abs(difference) > CLOCK_SECONDS:
        faults.append(f"its clock differs by {difference:+.1f} s: failures are ordered by these clocks")
    told["sees this folder"] = "yes" if seen == token else "no"
    if seen != token:
        faults.append(
            f"it cannot see or cannot write {Path.cwd()}: runs need a folder that all machines share ({seen})"
        )
    return HostFinding(name, told, faults)


def _reduced(machines: Gathering, nodes: list[Node], folder: RunFolder) -> str:
    """Time an all-reduce of a small and of a large tensor, with one rank per machine."""
    options = {"name": "doctor", "nproc_per_node": 1, "threads_per_rank": 1, "stall_timeout": 60.0}
    launcher = Launcher(**options)  # type: ignore[arg-type]
    launcher.machines = dict.fromkeys(machines.settings.hosts, 1)
    with received_signals() as signals:
        job = Job(folder, len(nodes), environment(launcher), Heartbeat(None, ranks=len(nodes)), signals, 1.0, RANK)
        shares = [NodeShare(node, range(index, index + 1)) for index, node in enumerate(nodes)]
        try:
            attempt(machines, shares, job, order, number=0, stall_timeout=60)
        except (RunFailed, ConfigurationError) as error:
            return f"an all-reduce over all of them failed: {error}"
    times = json.loads((folder.logs / MEASURED).read_text())
    rate = times["bytes"] / times["large"] / 1e6
    return (
        f"all-reduce over {times['ranks']} machines by {times['backend']}: 4 bytes in {1e6 * times['small']:.0f} us, "
        f"{times['bytes'] >> 20} MB in {1e3 * times['large']:.1f} ms ({rate:,.0f} MB/s)"
    )
