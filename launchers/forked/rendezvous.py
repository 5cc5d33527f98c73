"""How torchrun's warm agent meets itself: all ranks are on this machine, so there is nobody to wait for.

Source: https://pytorch.org/docs/stable/elastic/rendezvous.html. torch's own (c10d) waits up to 0.3 s at random,
so that many machines don't come at once, keeps itself alive in a thread, and listens on every interface.
"""

import socket
from datetime import timedelta

from torch.distributed import TCPStore  # noqa: TID253  (only the agent's process imports this module)
from torch.distributed.elastic.rendezvous import (  # noqa: TID253
    RendezvousHandler,
    RendezvousInfo,
    RendezvousParameters,
    RendezvousStoreInfo,
)

BACKEND = "manyheads"
ADDRESS = "127.0.0.1"


class OneMachine(RendezvousHandler):
    """One agent with a store of its own, on a port of the loopback interface that is free."""

    use_agent_store = True  # the ranks meet at the same store

    def __init__(self, parameters: RendezvousParameters):
        self._run_id = parameters.run_id

    def next_rendezvous(self) -> RendezvousInfo:
        listener = socket.create_server((ADDRESS, 0))
        port = listener.getsockname()[1]
        store = TCPStore(
            ADDRESS,
            port,
            is_master=True,
            timeout=timedelta(seconds=60),
            wait_for_workers=False,
            master_listen_fd=listener.detach(),
        )
        return RendezvousInfo(store, 0, 1, RendezvousStoreInfo(ADDRESS, port))

    def get_backend(self) -> str:
        return BACKEND

    def get_run_id(self) -> str:
        return self._run_id

    def is_closed(self) -> bool:
        return False

    def set_closed(self) -> None:
        pass

    def num_nodes_waiting(self) -> int:
        return 0

    def shutdown(self) -> bool:
        return True
