"""The machines of a run, as ``launcher.hosts`` or ``launcher.hostfile`` names them."""

import re
import socket
from collections.abc import Mapping, Sequence
from pathlib import Path

from manyheads.runner.errors import ConfigurationError

_LISTED = re.compile(r"(?!-)(?:\[(?!-)([^\s\]]+)\]|([^\s:\[]+)):(\d+)")  # as in -H of mpirun; none is an option of ssh
_LINE = re.compile(r"()(?!-)(\S+)\s+slots\s*=\s*(\d+)")  # Open MPI's hostfile, which horovodrun reads as well


def count_nodes(given: int | str | None, hosts: Mapping[str, int]) -> tuple[int, int] | None:
    """The fewest and the most machines that a run may have; None: this machine alone.

    ``given``: ``launcher.nodes``; ``hosts``: from ``read_hosts``.
    """
    if given is not None:
        fewest, _, most = str(given).partition(":")
        return int(fewest), int(most or fewest)
    return (len(hosts), len(hosts)) if set(map(str.lower, hosts)) - names_of_this_machine() else None


def read_hosts(hosts: Sequence[str] | None, hostfile: str | None) -> dict[str, int]:
    """Ranks on each host, in order; empty: this machine alone. Raises ConfigurationError."""
    if hosts is not None and hostfile is not None:
        raise ConfigurationError.at(
            "launcher.hostfile", hostfile, ": launcher.hosts is set too. Set one of them to null."
        )
    if hosts is not None:
        return _parse("launcher.hosts", hosts, _LISTED, "[name:slots,name:slots]")
    if hostfile is None:
        return {}
    try:
        text = Path(hostfile).expanduser().read_text(errors="replace")
    except OSError as error:
        raise ConfigurationError.at("launcher.hostfile", hostfile, f": {error.strerror}. Name a file.") from None
    lines = [line.partition("#")[0].strip() for line in text.splitlines()]
    return _parse(f"launcher.hostfile={hostfile}", list(filter(None, lines)), _LINE, "lines of the form: name slots=2")


def names_of_this_machine() -> set[str]:
    """The names by which hosts may mean this machine; in lower case, since host names are case-insensitive."""
    name = socket.gethostname().lower()
    return {"localhost", "127.0.0.1", name, name.partition(".")[0]}


def _parse(key: str, entries: Sequence[str], form: re.Pattern[str], allowed: str) -> dict[str, int]:
    matches = [form.fullmatch(entry.strip()) for entry in entries]
    slots = {match[1] or match[2]: int(match[3]) for match in matches if match}
    if len(slots) < len(entries) or not slots or len(set(slots.values())) > 1 or 0 in slots.values():
        raise ConfigurationError(
            f"{key}: {', '.join(entries) or 'nothing'} is not allowed. Allowed: {allowed}, each machine once, with "
            "the same number of ranks on every machine.",
            key=key,
        )
    return slots
