"""A node's agent: starts the ranks on its machine, watches them, reports on them to the parent, and ends them.

It is one small process without torch. Without the parent, ranks would keep training or wait forever, so the agent ends
every rank on this node when nothing was heard from the parent for ``--silence`` seconds.
"""

import argparse
import socket
import sys
import time
from pathlib import Path

from manyheads import __version__
from manyheads.launchers.nodes.link import ParentLink
from manyheads.launchers.nodes.node_part import attempt
from manyheads.launchers.nodes.wire import KEY_BYTES, Channel, Message, ProtocolError, greet, own_key
from manyheads.runner.errors import ConfigurationError, complain
from manyheads.runner.machine import addresses
from manyheads.runner.machine.process import die_with_parent, received_signals
from manyheads.runner.provenance.node_records import inventory

AGAIN_SECONDS = (0.1, 0.3, 0.6, 1.0, 1.0)  # until the next attempt


def main() -> int:
    """``python -m manyheads.launchers.nodes.node_agent``, which the parent starts; returns the exit code."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--address", required=True)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--key", help="file that holds the key; default: the user's own key")
    parser.add_argument("--name", required=True)
    parser.add_argument("--silence", type=float, required=True)
    parser.add_argument("--interface")
    parser.add_argument("--beside-parent", action="store_true", help="run on the parent's machine, as its child")
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
    """Read the run's key. Raises ConfigurationError if the run folder cannot be read."""
    try:
        return path.read_bytes()[: KEY_BYTES + 1]
    except OSError as error:
        raise ConfigurationError(
            f"{path.parent} cannot be read on {socket.gethostname()}: {error.strerror}. The run folder must be on "
            "storage that all nodes share: set hydra.run.dir."
        ) from None


def connect(address: str, port: int, key: bytes, *, silence: float) -> ParentLink:
    """Connect to the parent. Raises OSError with a sentence that names its address."""
    try:
        return ParentLink(_greeted(address, port, key, silence), silence=silence)
    except OSError as error:
        reason = error.strerror or error
        raise OSError(f"no connection to the run's parent at {addresses.bracketed(address)}:{port}: {reason}") from None


def _greeted(address: str, port: int, key: bytes, silence: float) -> Channel:
    """Connect and authenticate; retries, since a parent drops connections while many strangers connect to it."""
    for pause in AGAIN_SECONDS:
        connection = socket.create_connection((address, port), timeout=silence)
        try:
            return greet(connection, key)
        except ProtocolError:
            raise
        except ConnectionError:
            connection.close()
            time.sleep(pause)
    return greet(socket.create_connection((address, port), timeout=silence), key)


def serve(
    link: ParentLink, *, name: str, interface: str | None = None, signature: dict[str, str] | None = None
) -> None:
    """Act as this node's agent until the parent releases it.

    ``signature``: of the config typed on this machine; None if none was.
    """
    with received_signals() as signals:
        link.send({"is": "node", **description(link, name, interface), "signature": signature})
        while (order := link.next_order(signals)) is not None:
            link.send({"is": "ended", **attempt(order, link, signals), "port": free_port(link, interface)})
    link.close()


def description(link: ParentLink, name: str, interface: str | None) -> Message:
    """Describe this node to the parent: its name, addresses, versions and clock."""
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


def free_port(link: ParentLink, interface: str | None) -> int:
    """A free port of this machine, for the rendezvous of the ranks."""
    return addresses.free_port(addresses.own_address(interface) if interface else link.channel.address)


if __name__ == "__main__":
    sys.exit(main())
