"""Connections to a run's parent whose other end has not proved yet that it has the key."""

import socket
import threading
import time
from collections import Counter
from contextlib import suppress

MOST = 64
SECONDS = 5.0  # for proving it, from the first byte to the last


class Strangers:
    """No more than ``MOST`` at once, nor for longer than ``SECONDS``. Any thread may use it.

    If there are too many, the oldest connection of the address that holds the most is dropped: a client that
    reconnects endlessly mostly displaces itself, while an agent needs only milliseconds.
    """

    def __init__(self) -> None:
        self._since = dict[socket.socket, tuple[str, float]]()  # the oldest first
        self._lock = threading.Lock()

    def add(self, connection: socket.socket, address: str) -> None:
        """One more from ``address``."""
        with self._lock:
            self._since[connection] = address, time.monotonic()
            if len(self._since) > MOST:
                busiest, _ = Counter(each for each, _ in self._since.values()).most_common(1)[0]
                self._drop(next(one for one, (each, _) in self._since.items() if each == busiest))

    def remove(self, connection: socket.socket) -> bool:
        """This one is no stranger any more. False if it was dropped."""
        with self._lock:
            return self._since.pop(connection, None) is not None

    def drop_overdue(self) -> None:
        """Drop those that have taken too long."""
        with self._lock:
            latest = time.monotonic() - SECONDS
            for connection in [one for one, (_, since) in self._since.items() if since < latest]:
                self._drop(connection)

    def _drop(self, connection: socket.socket) -> None:
        del self._since[connection]
        with suppress(OSError):
            connection.shutdown(socket.SHUT_RDWR)  # the thread that reads from it then closes it
