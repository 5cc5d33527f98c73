"""Several machines on one: network namespaces with a host name, a loopback interface and an address each, and a switch.

The switch is a namespace of its own, so that nothing of it is seen outside, and names carry the number of the process
that made them: clusters of several test processes, or several checkouts, do not meet.
"""

import os
import re
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path
from typing import Any

import psutil

from tests.needs import require

_number = count()
_NAMED = re.compile(r"mh([0-9a-f]+)x\d+[sn]\d*")


class Cluster:
    """``size`` nodes, numbered from 1, with addresses 10.77.0.1, ... or fd77::1, ...; ``shell``: runs a command.

    ``named``: the nodes' names can be resolved on each. ``first``: what each command's shell does first, as root, in a
    mount namespace of its own. ``user``: who then runs the command, an ordinary user in place of root; he cannot
    enter another node, and so has no remote shell.
    """

    def __init__(
        self,
        folder: Path,
        size: int,
        *,
        ipv6: bool = False,
        named: bool = False,
        first: str = "",
        user: int | None = None,
    ):
        self.folder, self.size, self.ipv6, self.named = folder, size, ipv6, named
        self._first, self._user = first, user
        self.prefix = f"mh{os.getpid():x}x{next(_number)}"
        self.switch = f"{self.prefix}s"
        self.shell = folder / "remote_shell"

    def start(self) -> None:
        _ip("netns", "add", self.switch)
        _ip("-n", self.switch, "link", "add", "bridge", "type", "bridge")
        _ip("-n", self.switch, "link", "set", "bridge", "up")
        for node in self.nodes:
            name, port = self.namespace(node), f"port{node}"
            _ip("netns", "add", name)
            _ip("-n", self.switch, "link", "add", port, "type", "veth", "peer", "name", "eth0", "netns", name)
            _ip("-n", self.switch, "link", "set", port, "master", "bridge", "up")
            own = [f"fd77::{node}/64", "nodad"] if self.ipv6 else [f"10.77.0.{node}/24"]
            _ip("-n", name, "addr", "add", *own, "dev", "eth0")
            for link in ("lo", "eth0"):
                _ip("-n", name, "link", "set", link, "up")
        # The last number of an address is the node's; as ssh does it, what follows is a command line for a shell.
        self.shell.write_text(
            "#!/bin/sh\n"
            "node=${1##*[.:]}; shift\n"
            f"exec ip netns exec {self.prefix}n$node unshare --uts --mount --fork "
            f'sh -c \'hostname node$0; {self._names()}{self._first} exec {self._as_user()} sh -c "$@"\' $node "$@"\n'
        )
        self.shell.chmod(0o700)

    def _names(self) -> str:
        if not self.named:
            return ""
        hosts = self.folder / "hosts"
        hosts.write_text("127.0.0.1 localhost\n" + "".join(f"{self.address(n)} node{n}\n" for n in self.nodes))
        return f"mount --bind {hosts} /etc/hosts; "

    def _as_user(self) -> str:
        return "" if self._user is None else f"unshare --user --map-user={self._user} --map-group={self._user}"

    @property
    def nodes(self) -> range:
        return range(1, self.size + 1)

    def namespace(self, node: int) -> str:
        return f"{self.prefix}n{node}"

    def address(self, node: int) -> str:
        return f"fd77::{node}" if self.ipv6 else f"10.77.0.{node}"

    def hosts(self, slots: int, *nodes: int) -> str:
        """The override for agents on these nodes, or on all."""
        written = [
            f"'[{self.address(n)}]:{slots}'" if self.ipv6 else f"{self.address(n)}:{slots}" for n in nodes or self.nodes
        ]
        return f"launcher.hosts=[{','.join(written)}]"

    def on(self, node: int, *command: str) -> list[str]:
        """The command as one that runs on this node."""
        return [str(self.shell), self.address(node), 'exec "$0" "$@"', *command]

    def add_dead_end(self, node: int) -> None:
        """A second interface, eth1, with an address 10.78.0.<node>, that leads to no other node."""
        name, nowhere = self.namespace(node), f"nowhere{node}"
        _ip("-n", self.switch, "link", "add", nowhere, "type", "veth", "peer", "name", "eth1", "netns", name)
        _ip("-n", self.switch, "link", "set", nowhere, "up")
        _ip("-n", name, "addr", "add", f"10.78.0.{node}/24", "dev", "eth1")
        _ip("-n", name, "link", "set", "eth1", "up")

    def cut(self, node: int) -> None:
        _ip("-n", self.switch, "link", "set", f"port{node}", "down")

    def mend(self, node: int) -> None:
        _ip("-n", self.switch, "link", "set", f"port{node}", "up")

    def narrow(self, node: int, *, rate: str, queue: int) -> None:
        """Both ways no more than this rate, such as 8mbit; what does not fit into so many bytes of queue is lost."""
        for namespace, link in ((self.switch, f"port{node}"), (self.namespace(node), "eth0")):
            shape = ("rate", rate, "burst", "4kb", "limit", str(queue))
            _run("tc", "-n", namespace, "qdisc", "replace", "dev", link, "root", "tbf", *shape)

    def widen(self, node: int) -> int:
        """Take that away; returns how many packets it has lost."""
        lost = 0
        for namespace, link in ((self.switch, f"port{node}"), (self.namespace(node), "eth0")):
            said = _run("tc", "-s", "-n", namespace, "qdisc", "show", "dev", link).stdout
            lost += sum(map(int, re.findall(r"dropped (\d+)", said)))
            _run("tc", "-n", namespace, "qdisc", "del", "dev", link, "root")
        return lost

    def processes(self, *nodes: int) -> list[psutil.Process]:
        """Those on these nodes, or on all."""
        found = []
        for node in nodes or self.nodes:
            listed = subprocess.run(["ip", "netns", "pids", self.namespace(node)], capture_output=True, text=True)
            for pid in map(int, listed.stdout.split()):
                with suppress(psutil.NoSuchProcess):
                    process = psutil.Process(pid)
                    if process.status() != psutil.STATUS_ZOMBIE:
                        found.append(process)
        return found

    def kill(self, *nodes: int) -> None:
        """As when the power fails: nothing on these nodes says goodbye."""
        for process in self.processes(*nodes):
            with suppress(ProcessLookupError):
                os.kill(process.pid, signal.SIGKILL)

    def close(self) -> None:
        self.kill()
        for name in (*map(self.namespace, self.nodes), self.switch):
            subprocess.run(["ip", "netns", "del", name], capture_output=True)


def _ip(*arguments: str) -> None:
    _run("ip", *arguments)


def _run(*command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, check=True, capture_output=True, text=True)


def sweep() -> None:
    """Remove what test processes left that were killed."""
    for line in subprocess.run(["ip", "netns", "list"], capture_output=True, text=True).stdout.splitlines():
        match = _NAMED.fullmatch(line.split()[0])
        if match and not psutil.pid_exists(int(match[1], 16)):
            for pid in subprocess.run(["ip", "netns", "pids", match[0]], capture_output=True, text=True).stdout.split():
                with suppress(ProcessLookupError):
                    os.kill(int(pid), signal.SIGKILL)
            subprocess.run(["ip", "netns", "del", match[0]], capture_output=True)


@contextmanager
def started(folder: Path, size: int, **options: Any) -> Iterator[Cluster]:
    """A cluster that is gone afterwards, whatever happens. The test is skipped where there can be none."""
    require("create network namespaces")
    sweep()
    cluster = Cluster(folder, size, **options)
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.close()
