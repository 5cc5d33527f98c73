"""The rendezvous of a run's nodes: the parent listens on one address and admits agents that have the key."""

import queue
import socket
import threading
import time
from collections import Counter
from contextlib import suppress
from typing import Any

from manyheads.launchers.nodes import wire
from manyheads.launchers.nodes.wire import Channel, Message
from manyheads.runner.errors import ConfigurationError

ALIVE_SECONDS = 0.5  # between two messages of the parent
MOST_STRANGERS = 64  # connections that have not yet proved that they have the key
STRANGER_SECONDS = 5.0  # for proving it, from the first byte to the last


class Strangers:
    """Connections whose other end has not proved yet that it has the key. Any thread may use it.

    There are no more than ``MOST_STRANGERS`` at once, and none for longer than ``STRANGER_SECONDS``.

    If there are too many, the oldest connection of the address that holds the most is dropped: a client that
    reconnects endlessly mostly displaces itself, while an agent needs only milliseconds.
    """

    def __init__(self) -> None:
        self._since = dict[socket.socket, tuple[str, float]]()  # the oldest first
        self._lock = threading.Lock()

    def add(self, connection: socket.socket, address: str) -> None:
        """Add a connection from ``address``; if there are too many, one is dropped."""
        with self._lock:
            self._since[connection] = address, time.monotonic()
            if len(self._since) > MOST_STRANGERS:
                busiest, _ = Counter(host for host, _ in self._since.values()).most_common(1)[0]
                self._drop(next(one for one, (host, _) in self._since.items() if host == busiest))

    def remove(self, connection: socket.socket) -> bool:
        """Remove a connection, which has proved that it has the key, or has ended; False if it was dropped before."""
        with self._lock:
            return self._since.pop(connection, None) is not None

    def drop_overdue(self) -> None:
        """Drop the connections that have taken too long."""
        with self._lock:
            latest = time.monotonic() - STRANGER_SECONDS
            for connection in [one for one, (_, since) in self._since.items() if since < latest]:
                self._drop(connection)

    def _drop(self, connection: socket.socket) -> None:
        del self._since[connection]
        with suppress(OSError):
            connection.shutdown(socket.SHUT_RDWR)  # the thread that reads from it then closes it


class Node:
    """One machine, as its agent describes it. ``heard``: when its last message arrived.

    ``address``: where the others reach it; ``port``: a free port there.
    """

    def __init__(self, channel: Channel, described: Message):
        self.channel, self.described = channel, described
        self.name: str = described["name"]
        self.host, self.address = described["host"], described["address"]
        self.port: int = described["port"]
        self.heard = time.monotonic()
        self.is_connected = True

    def __str__(self) -> str:
        same = {self.name, self.host, self.address}
        others = [name for name in (self.host, self.address) if name != self.name]
        return f"{self.name} ({', '.join(dict.fromkeys(others))})" if len(same) > 1 else self.name

    def send(self, message: Message) -> None:
        """Send a message; if the connection is lost, the receiving thread notices."""
        with suppress(OSError):
            self.channel.send(message)


class Meeting:
    """Listens on ``address`` and tells all connected nodes that the parent is alive, until ``close``.

    ``inbox``: the nodes' messages, None when one disconnects. ``stop``: the number of an attempt at the run,
    and the signal that asks its ranks to stop, or 0.
    """

    def __init__(self, address: str, port: int, key: bytes):
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        try:
            self._server = socket.create_server((address, port), family=family)
        except OSError as error:
            raise ConfigurationError(
                f"launcher.rendezvous: {address} cannot listen on port {port}: {error.strerror}. Choose another.",
                key="launcher.rendezvous",
            ) from None
        self.address, self.port = address, int(self._server.getsockname()[1])
        self.inbox: queue.Queue[tuple[Node, Message | None]] = queue.Queue()
        self.arrived: queue.Queue[Node] = queue.Queue()
        self._key, self._nodes = key, list[Node]()
        self._strangers = Strangers()
        self.stop = (0, 0)
        self._closing = threading.Event()
        for work in (self._accept, self._live):
            threading.Thread(target=work, name="meeting", daemon=True).start()

    def next_arrival(self, seconds: float) -> Node | None:
        """The next node that connects; None if none does within ``seconds``."""
        try:
            return self.arrived.get(timeout=max(0.01, seconds))
        except queue.Empty:
            return None

    def close(self) -> None:
        """Release all nodes and admit no others."""
        self._closing.set()
        with suppress(OSError):
            self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()
        for node in self._nodes:
            node.channel.close()

    def _live(self) -> None:
        while not self._closing.wait(ALIVE_SECONDS):
            self._strangers.drop_overdue()
            for node in [member for member in self._nodes if member.is_connected]:
                node.send({"do": "alive", "stop": self.stop})

    def _accept(self) -> None:
        while True:
            try:
                connection, peer = self._server.accept()
            except OSError:
                return
            self._strangers.add(connection, peer[0])
            threading.Thread(target=self._serve, args=(connection,), name="node", daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        try:
            node = self._met(connection)
            if not self._strangers.remove(connection):
                raise ConnectionAbortedError
        except (OSError, ValueError, KeyError, TypeError):
            self._strangers.remove(connection)
            connection.close()
            return
        self._nodes.append(node)
        self.arrived.put(node)
        try:
            while True:
                message = node.channel.receive()
                node.heard = time.monotonic()
                if message["is"] != "alive":
                    self.inbox.put((node, message))
        except (OSError, ValueError, KeyError):
            node.is_connected = False
            self.inbox.put((node, None))

    def _met(self, connection: socket.socket) -> Node:
        channel = wire.admit(connection, self._key)
        connection.settimeout(wire.HANDSHAKE_SECONDS)
        described: dict[str, Any] = channel.receive()
        connection.settimeout(None)
        return Node(channel, described)
