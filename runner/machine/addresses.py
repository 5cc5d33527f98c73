"""Network addresses and interfaces of this machine, and addresses that users type."""

import ipaddress
import re
import socket
from typing import Any

from manyheads.runner.errors import ConfigurationError

_ENDPOINT = re.compile(r"(?:\[([^\]\s]+)\]|([^\s:\[\]]+)):(\d+)")


def parse_endpoint(key: str, text: str) -> tuple[str, int]:
    """Host and port of ``node1:29400`` or ``[fd00::1]:29400``. Raises ConfigurationError."""
    match = _ENDPOINT.fullmatch(text)
    if not match or not 0 < int(match[3]) < 65536:
        raise ConfigurationError.at(
            key, text, " is not allowed. Allowed: name:port or [address]:port, such as node1:29400."
        )
    return match[1] or match[2], int(match[3])


def resolved(key: str, host: str) -> str:
    """The address that a host name resolves to on this machine. Raises ConfigurationError."""
    try:
        return str(socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)[0][4][0])
    except OSError as error:
        reason = error.strerror or error
        raise ConfigurationError(
            f"{key}: {host} cannot be resolved here: {reason}. Give its address, or add the name to /etc/hosts.",
            key=key,
        ) from None


def own_address(interface: str | None, *, towards: str | None = None) -> str:
    """This machine's address on an interface, else the one from which ``towards`` is reached.

    Raises ConfigurationError for an interface that does not exist, or has no address.
    """
    if interface is not None:
        address = of_interface(interface)
        if address is None:
            names = ", ".join(sorted(_interfaces()))
            raise ConfigurationError.at(
                "launcher.network_interface",
                interface,
                f": {socket.gethostname()} has no such interface with an address. Its interfaces: {names}.",
            )
        return address
    if towards is None:
        return "127.0.0.1"
    family = socket.AF_INET6 if ":" in towards else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as probe:  # sends nothing
        try:
            probe.connect((towards, 9))
        except OSError as error:
            raise ConfigurationError(
                f"{towards} can't be reached from {socket.gethostname()}: {error.strerror}. "
                "Set launcher.network_interface, or correct the address."
            ) from None
        return str(probe.getsockname()[0])


def of_interface(name: str) -> str | None:
    """The first address of an interface; link-local ones, which need more than an address, are skipped."""
    for family in (socket.AF_INET, socket.AF_INET6):
        for entry in _interfaces().get(name, []):
            if entry.family == family and not entry.address.startswith("fe80"):
                return entry.address.partition("%")[0]
    return None


def interface_of(address: str) -> str | None:
    """The interface that has this address."""
    for name, entries in _interfaces().items():
        if any(entry.address.partition("%")[0] == address for entry in entries):
            return name
    return None


def is_own(address: str) -> bool:
    """Whether this machine has the address."""
    return is_loopback(address) or interface_of(address) is not None


def is_loopback(address: str) -> bool:
    """Whether it is a loopback address, which means this machine on every machine."""
    return ipaddress.ip_address(address.partition("%")[0]).is_loopback


def free_port(address: str) -> int:
    """A port of the address on which nothing listens now."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.create_server((address, 0), family=family) as server:
        return int(server.getsockname()[1])


def bracketed(address: str) -> str:
    """An address as in host:port: IPv6 in brackets."""
    return f"[{address}]" if ":" in address else address


def meeting_place(host: str) -> str:
    """The rendezvous address of this machine. Raises ConfigurationError if no other machine can reach it."""
    address = resolved("launcher.rendezvous", host)
    if is_loopback(address):
        raise ConfigurationError(
            f"launcher.rendezvous: {host} is {address} here, which no other machine can reach. Give this machine's "
            "address, or set launcher.network_interface.",
            key="launcher.rendezvous",
        )
    return address


def _interfaces() -> dict[str, list[Any]]:
    """Each network interface with its addresses."""
    import psutil  # a command that starts no run on several machines starts sooner without it

    return psutil.net_if_addrs()
