"""A node's agent: starts the ranks of its machine, watches them, speaks for them with the parent, and ends them.

It is one small process without torch. Ranks that the parent can no longer hear would train on or wait for ever: when
nothing has been heard of it for a time, everything on this node ends.
"""

import argparse
import socket
import sys
import time
from pathlib import Path

from manyheads import __version__
from manyheads.launchers.nodes.link import Link
from manyheads.launchers.nodes.part import attempt
from manyheads.launchers.nodes.wire import KEY_BYTES, Message, greet, own_key
from manyheads.launchers.signals import received_signals
from manyheads.runner.machine import addresses
from manyheads.runner.machine.inventory import inventory
from manyheads.runner.run.errors import ConfigurationError, complain
from manyheads.runner.run.parent_death import die_with_parent


def main() -> int:
    """``python -m manyheads.launchers.nodes.agent``, as the parent starts it; returns the exit code."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--address", required=True)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--key", help="the file that holds the key; by default the user's own")
    parser.add_argument("--name", required=True)
    parser.add_argument("--silence", type=float, required=True)
    parser.add_argument("--interface")
    parser.add_argument("--beside-parent", action="store_true", help="on its machine, and as its child")
    given = parser.parse_args()
    if given.beside_parent:
        die_with_parent()
    try:
        key = own_key() if given.key is None else read_key(Path(given.key))
        link = connect(given.address, given.port, key, silence=given.silence)
    except (ConfigurationError, OSError) as error:
        complain(f"{given.name}: {error}")
        return 2
    serve(link, name=given.name, interface=given.interface)
    return 0


def read_key(path: Path) -> bytes:
    """The run's key. Raises ConfigurationError where the run folder cannot be read."""
    try:
        return path.read_bytes()[: KEY_BYTES + 1]
    except OSError as error:
        raise ConfigurationError(
            f"{path.parent} cannot be read on {socket.gethostname()}: {error.strerror}. The run folder must lie on "
            "storage that all nodes share: set hydra.run.dir."
        ) from None


def connect(address: str, port: int, key: bytes, *, silence: float) -> Link:
    """The connection to the parent. Raises OSError with a sentence."""
    try:
        return Link(greet(socket.create_connection((address, port), timeout=silence), key), silence=silence)
    except OSError as error:
        reason = error.strerror or error
        raise OSError(f"no connection to the run's parent at {addresses.bracketed(address)}:{port}: {reason}") from None


def serve(link: Link, *, name: str, interface: str | None = None, signature: dict[str, str] | None = None) -> None:
    """Be the agent of this node until the parent has no more use for it.

    ``signature``: of the config that was typed here, where one was.
    """
    with received_signals() as signals:
        link.send({"is": "node", **description(link, name, interface), "signature": signature})
        while (order := link.next_order(signals)) is not None:
            link.send({"is": "ended", **attempt(order, link, signals), "port": free_port(link, interface)})
    link.close()


def description(link: Link, name: str, interface: str | None) -> Message:
    """What the parent should know of this node."""
    address = addresses.own_address(interface) if interface else link.channel.address
    machine = inventory()
    return {
        "name": name,
        "host": machine["host"],
        "address": address,
        "port": free_port(link, interface),
        "python": machine["versions"]["python"],
        "torch": machine["versions"]["torch"],
        "manyheads": __version__,
        "time": time.time(),
        "machine": machine,
    }


def free_port(link: Link, interface: str | None) -> int:
    """One over which ranks could meet here."""
    return addresses.free_port(addresses.own_address(interface) if interface else link.channel.address)


if __name__ == "__main__":
    sys.exit(main())
