"""The messages between a process and the one beside it that talks to object storage.

Each request is one message on a socket that forks of the process share. It carries one end of a new connection, for
its answer alone; if that ends without an answer, the other process has ended. Files are passed as open descriptors.
"""

import json
import os
import socket
from collections.abc import Mapping, Sequence
from typing import Any

from manyheads.runner.run.objects import MissingObject, StorageError

MOST = 2**17  # bytes of a message
KINDS: Mapping[str, type[StorageError]] = {"missing": MissingObject, "other": StorageError}


def pair() -> tuple[socket.socket, socket.socket]:
    """Two connected ends that keep messages apart; each notices when the other is closed."""
    return socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)


def send(channel: socket.socket, message: Any, files: Sequence[int] = ()) -> None:
    """Send a message with open files. Raises OSError."""
    socket.send_fds(channel, [json.dumps(message).encode()], files)


def receive(channel: socket.socket) -> tuple[Any, list[int]]:
    """The next message, None at the end, and the files that came with it. Raises OSError."""
    content, files, _, _ = socket.recv_fds(channel, MOST, 4)
    for handle in files:
        os.set_inheritable(handle, False)
    return (json.loads(content) if content else None), files


def failure(error: StorageError) -> dict[str, str]:
    """The answer for an error."""
    kind = "missing" if isinstance(error, MissingObject) else "other"
    return {"error": str(error), "kind": kind}


def checked(answer: Any) -> Any:
    """The answer. Raises the StorageError that it reports, or one for a missing answer."""
    if answer is None:
        raise StorageError("the process that talks to object storage has ended unexpectedly")
    if "error" in answer:
        raise KINDS[answer["kind"]](answer["error"])
    return answer
