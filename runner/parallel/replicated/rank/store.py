"""Where the ranks of a replica leave its addresses for each other and for other replicas."""

import socket
from datetime import timedelta

from torch.distributed import TCPStore


def store_on(host: str, timeout: timedelta) -> TCPStore:
    """A store that listens on this address alone; torch's own would listen on all interfaces."""
    listener = socket.create_server((host, 0))
    port = listener.getsockname()[1]
    return TCPStore(
        host,
        port,
        is_master=True,
        wait_for_workers=False,
        timeout=timeout,
        master_listen_fd=listener.detach(),
    )
