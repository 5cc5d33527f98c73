"""The launcher's settings for a run on several machines."""

from dataclasses import dataclass, field

from manyheads.runner.option.tree import Section
from manyheads.runner.run.hosts import count_nodes, read_hosts

DEFAULT_SHELL = "ssh -o BatchMode=yes -o ConnectTimeout=10 {host}"
KEYS = (
    *("hosts", "hostfile", "nodes", "rendezvous", "remote_shell", "network_interface", "node_timeout"),
    *("start_timeout", "max_restarts"),
)


@dataclass(frozen=True)
class NodeSettings:
    """A run on several machines.

    ``hosts``: where to start agents; [] if each is started manually and all meet at ``rendezvous``. ``fewest``,
    ``most``: the number of machines. ``per_node``: ranks on each. ``shell``: the command line that runs another one on
    ``{host}``. ``silence``: seconds without a message after which a machine counts as lost. ``addresses``: the
    hosts' addresses, if their names do not resolve to them; the shell then starts every agent, even on this machine.
    """

    hosts: list[str]
    rendezvous: str | None
    fewest: int
    most: int
    per_node: int
    shell: str
    interface: str | None
    silence: float
    start_timeout: float
    max_restarts: int
    addresses: dict[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, section: Section) -> "NodeSettings | None":
        """Read the launcher's section of the run config; None for a run on this machine alone.

        Raises ConfigurationError.
        """
        hosts = read_hosts(section.get("hosts"), section.get("hostfile"))
        if (count := count_nodes(section.get("nodes"), hosts)) is None:
            return None
        return cls(
            hosts=list(hosts),
            rendezvous=section.get("rendezvous"),
            fewest=count[0],
            most=count[1],
            per_node=section["nproc_per_node"],
            shell=section.get("remote_shell") or DEFAULT_SHELL,
            interface=section.get("network_interface"),
            silence=section["node_timeout"],
            start_timeout=section["start_timeout"],
            max_restarts=section["max_restarts"],
        )
