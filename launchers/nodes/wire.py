"""The protocol between a run's parent and its agents: authenticated messages of bounded size, plain JSON over TCP.

Both sides hold one key of 32 bytes. A connection begins with a challenge in each direction: the connecting side proves
first that it has the key, then the listening side does. After that, every message carries a code (HMAC-SHA256) over its
content, direction and number, with a key of that connection alone, so that none can be forged, replayed, dropped or
reflected. Nothing is encrypted, and nothing is unpickled.
"""

import hashlib
import hmac
import json
import os
import secrets
import socket
import struct
import threading
from contextlib import suppress
from typing import Any

from manyheads.runner.errors import ConfigurationError
from manyheads.runner.run.seal import how_to_keep, keyed

KEY_BYTES = 32
MOST_BYTES = 1 << 20  # of one message
HANDSHAKE_SECONDS = 10.0
_MAGIC = b"manyheads nodes 1\n"
_CODE = hashlib.sha256().digest_size

Message = dict[str, Any]


class ProtocolError(ConnectionError):
    """The other side failed to prove that it has the key, or sent a message that breaks the protocol."""


class Channel:
    """One authenticated connection. ``send`` may be called by any thread, ``receive`` by one."""

    def __init__(self, connection: socket.socket, key: bytes, *, role: bytes, other: bytes):
        """``key``: the connection's own; ``role``, ``other``: names of the sending and the receiving direction."""
        self._socket, self._key = connection, key
        self._own, self._other = role, other
        self._sent = self._received = 0
        self._lock = threading.Lock()

    def send(self, message: Message) -> None:
        """Send a message. Raises OSError if the connection is gone, ValueError if the message is too long."""
        content = json.dumps(message).encode()
        if len(content) > MOST_BYTES:
            raise ValueError(f"a message of {len(content)} bytes; the limit is {MOST_BYTES}")
        with self._lock:
            code = _code(self._key, self._own, self._sent, content)
            self._sent += 1
            self._socket.sendall(struct.pack("!I", len(content)) + code + content)

    def receive(self) -> Message:
        """The next message. Raises ConnectionError or OSError at the end of the connection, or for a forged message."""
        (length,) = struct.unpack("!I", _exactly(self._socket, 4))
        if length > MOST_BYTES:
            raise ProtocolError(f"a message of {length} bytes; the limit is {MOST_BYTES}")
        code, content = _exactly(self._socket, _CODE), _exactly(self._socket, length)
        if not hmac.compare_digest(code, _code(self._key, self._other, self._received, content)):
            raise ProtocolError("a message with a wrong authentication code")
        self._received += 1
        message = json.loads(content)
        if not isinstance(message, dict):
            raise ProtocolError("a message that is not an object")
        return message

    @property
    def address(self) -> str:
        """This end's address, at which the other end reaches this machine."""
        return self._socket.getsockname()[0]

    def close(self) -> None:
        """Close the connection, which also ends a waiting ``receive``."""
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()


def greet(connection: socket.socket, key: bytes) -> Channel:
    """Authenticate the connecting side of a connection. Raises ConnectionError or OSError."""
    return _handshake(connection, key, role=b"agent", other=b"parent")


def admit(connection: socket.socket, key: bytes) -> Channel:
    """Authenticate the listening side of a connection, which proves its key only after the other side has.

    Raises ConnectionError or OSError.
    """
    return _handshake(connection, key, role=b"parent", other=b"agent")


def _handshake(connection: socket.socket, key: bytes, *, role: bytes, other: bytes) -> Channel:
    if len(key) != KEY_BYTES:
        raise ProtocolError(f"a key of {len(key)} bytes")
    connection.settimeout(HANDSHAKE_SECONDS)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    mine = secrets.token_bytes(KEY_BYTES)
    connection.sendall(_MAGIC + mine)
    if _exactly(connection, len(_MAGIC)) != _MAGIC:
        raise ProtocolError("it speaks a different protocol")
    theirs = _exactly(connection, KEY_BYTES)
    nonces = mine + theirs if role == b"agent" else theirs + mine
    expected = _proof(key, other, nonces)
    if role == b"agent":
        connection.sendall(_proof(key, role, nonces))
    if not hmac.compare_digest(_exactly(connection, _CODE), expected):
        raise ProtocolError("it has a different key")
    if role == b"parent":
        connection.sendall(_proof(key, role, nonces))
    connection.settimeout(None)
    return Channel(connection, _proof(key, b"session", nonces), role=role, other=other)


def _proof(key: bytes, who: bytes, nonces: bytes) -> bytes:
    return hmac.new(key, _MAGIC + who + nonces, hashlib.sha256).digest()


def _code(key: bytes, direction: bytes, number: int, content: bytes) -> bytes:
    return hmac.new(key, direction + struct.pack("!Q", number) + content, hashlib.sha256).digest()


def _exactly(connection: socket.socket, count: int) -> bytes:
    received = bytearray()
    while len(received) < count:
        part = connection.recv(min(65536, count - len(received)))
        if not part:
            raise ConnectionResetError("the connection has ended")
        received += part
    return bytes(received)


def own_key() -> bytes:
    """A key derived from the user's own key: the same on all machines that have it. Raises ConfigurationError."""
    if (code := keyed("the nodes of a run", None)) is None:
        raise ConfigurationError(
            f"there is no folder for your key, with which machines authenticate each other: {how_to_keep()}."
        )
    return bytes.fromhex(code)


def new_key(path: str | os.PathLike) -> bytes:
    """Write a random key to a new file that only its owner can read, and return it."""
    key = os.urandom(KEY_BYTES)
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    with open(handle, "wb") as file:
        file.write(key)
        file.flush()
        os.fsync(file.fileno())
    return key
