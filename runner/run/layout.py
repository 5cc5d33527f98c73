"""The machines of a run, as ``launcher.hosts`` or ``launcher.hostfile`` names them."""

import re
import socket
from pathlib import Path
from typing import Any

from manyheads.runner.run.errors import ConfigurationError

_LISTED = re.compile(r"(?:\[([^\s\]]+)\]|([^\s:]+)):(\d+)")  # as in -H of horovodrun and mpirun; IPv6 in brackets
_LINE = re.compile(r"()(\S+)\s+slots\s*=\s*(\d+)")  # Open MPI's hostfile, which horovodrun reads as well


def ranks(config: dict[str, Any]) -> int:
    """The number of ranks of a run config on all its machines; of those it may have, where that is not fixed."""
    return config["launcher"]["nproc_per_node"] * max(
        1, len(machines(config)), (nodes(config["launcher"]) or (1, 1))[1]
    )


def nodes(launcher: dict[str, Any]) -> tuple[int, int] | None:
    """The fewest and the most machines that a run may have; None: this machine alone. Raises ConfigurationError."""
    hosts, given = read_hosts(launcher.get("hosts"), launcher.get("hostfile")), launcher.get("nodes")
    if given is not None and "rendezvous" not in launcher:  # what starts the ranks knows where
        return given, given
    if given is None:
        if launcher.get("rendezvous") is not None:
            raise ConfigurationError(
                "launcher.rendezvous needs launcher.nodes, the number of machines that meet there."
            )
        return (len(hosts), len(hosts)) if set(map(str.lower, hosts)) - names_of_this_machine() else None
    if not hosts and launcher["rendezvous"] is None:
        raise ConfigurationError(
            f"launcher.nodes={given}: the machines have no meeting point. Set launcher.rendezvous=<host>:<port> and "
            "type the command on each, or set launcher.hosts=[node1:4,node2:4]."
        )
    if hosts and launcher.get("rendezvous") is not None:
        raise ConfigurationError("launcher.rendezvous: launcher.hosts is set too. Set one of them to null.")
    fewest, _, most = str(given).partition(":")
    low, high = int(fewest), int(most or fewest)
    if not 0 < low <= high or (hosts and high != len(hosts)):
        also = f", or with launcher.hosts the number listed there: {len(hosts)}" if hosts else ""
        raise ConfigurationError(f"launcher.nodes={given} is not allowed. Allowed: a number, or fewest:most{also}.")
    return low, high


def machines(config: dict[str, Any]) -> dict[str, int]:
    """Ranks on each host; empty: this machine alone. Raises ConfigurationError."""
    return read_hosts(config["launcher"].get("hosts"), config["launcher"].get("hostfile"))


def read_hosts(hosts: list[str] | None, hostfile: str | None) -> dict[str, int]:
    """Ranks on each host, in order; empty: this machine alone. Raises ConfigurationError."""
    if hosts is not None and hostfile is not None:
        raise ConfigurationError(f"launcher.hostfile={hostfile}: launcher.hosts is set too. Set one of them to null.")
    if hosts is not None:
        return _parse("launcher.hosts", hosts, _LISTED, "[name:slots,name:slots]")
    if hostfile is None:
        return {}
    try:
        text = Path(hostfile).expanduser().read_text(errors="replace")
    except OSError as error:
        raise ConfigurationError(f"launcher.hostfile={hostfile}: {error.strerror}. Name a file.") from None
    lines = [line.partition("#")[0].strip() for line in text.splitlines()]
    return _parse(f"launcher.hostfile={hostfile}", list(filter(None, lines)), _LINE, "lines of the form: name slots=2")


def refuse_other_machines(launcher: dict[str, Any]) -> None:
    """Raises ConfigurationError when a launcher's ``hosts`` or ``hostfile`` names another machine than this one.

    For launchers that cannot start ranks there; runs of others that were recorded before they could are theirs too.
    """
    if "remote_shell" in launcher:
        return
    hosts, hostfile = launcher.get("hosts"), launcher.get("hostfile")
    allowed = names_of_this_machine()
    for name in read_hosts(hosts, hostfile):
        if name.lower() not in allowed:
            key = f"launcher.hosts=[{','.join(hosts)}]" if hosts is not None else f"launcher.hostfile={hostfile}"
            raise ConfigurationError(
                f"{key} names {name}, another machine; runs on several machines are not supported yet. Allowed: "
                f"{', '.join(sorted(allowed))}. Set it to null, and launcher.nproc_per_node to the number of ranks."
            )


def names_of_this_machine() -> set[str]:
    """In lower case, which host names do not distinguish."""
    name = socket.gethostname().lower()
    return {"localhost", "127.0.0.1", name, name.partition(".")[0]}


def _parse(key: str, entries: list[str], form: re.Pattern[str], allowed: str) -> dict[str, int]:
    found = [form.fullmatch(entry.strip()) for entry in entries]
    slots = {match[1] or match[2]: int(match[3]) for match in found if match}
    if len(slots) < len(entries) or not slots or len(set(slots.values())) > 1 or 0 in slots.values():
        raise ConfigurationError(
            f"{key}: {', '.join(entries) or 'nothing'} is not allowed. Allowed: {allowed}, each machine once, with "
            "the same number of ranks on every machine."
        )
    return slots
