"""The members of an update, and what they exchange: torchft's manager of one replica."""

import logging
import os
import socket
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.distributed import ReduceOp, TCPStore
from torchft import Manager, ProcessGroupGloo

from manyheads.runner.parallel.replicated.rank.healing import FolderTransport

HOST = "127.0.0.1"
LOUD = ("torchft", "torchft_commits", "torchft_quorums")
PLACE = "MANYHEADS_REPLICAS"  # the variable that names the folder of states for replicas that have come back
LIGHTHOUSE = "MANYHEADS_LIGHTHOUSE"


class Membership:
    """A replica among the live ones. ``standing``: returns its state; ``step``: number of updates it has made."""

    def __init__(self, replica: int, *, timeout: float, standing: Callable[[], dict[str, Any]], step: int):
        self._taken: dict[str, Any] | None = None
        for name in LOUD:  # several lines for each update
            logging.getLogger(name).setLevel(logging.WARNING)
        seconds = timedelta(seconds=timeout)
        self._store = loopback_store(seconds)
        self._manager = Manager(
            pg=ProcessGroupGloo(timeout=seconds),
            load_state_dict=self._take,
            state_dict=standing,
            min_replica_size=1,
            use_async_quorum=False,  # shares are drawn after it
            timeout=seconds,
            quorum_timeout=seconds,
            connect_timeout=seconds,
            rank=0,
            world_size=1,
            store_addr=HOST,
            store_port=self._store.port,
            lighthouse_addr=os.environ[LIGHTHOUSE],
            replica_id=f"replica_{replica}",
            hostname=HOST,
            checkpoint_transport=FolderTransport(Path(os.environ[PLACE]), replica),
            init_sync=False,  # all have the same weights from the seed
            quorum_retries=3,
        )
        self._manager.load_state_dict({"step": step, "batches_committed": 0})

    @property
    def step(self) -> int:
        """How many exchanges have been committed."""
        return self._manager.current_step()

    @property
    def share(self) -> int:
        """Which share of the next update is this replica's."""
        share = self._manager.participating_rank()
        assert share is not None
        return share

    @property
    def count(self) -> int:
        """The number of replicas in the update."""
        return self._manager.num_participants()

    def enter(self, idle: Callable[[], bool]) -> bool:
        """Agree on the members; returns whether that succeeded. Raises RuntimeError if the run is to stop.

        ``idle``: called while it takes long.
        """
        while True:
            try:
                self._manager.start_quorum()
                return self._manager.errored() is None
            except Exception as error:  # whatever torchft raises where the lighthouse is away
                self._manager._quorum_future = None  # or it would be raised again for ever
                if idle():
                    raise RuntimeError(f"asked to stop while no quorum could be formed: {error}") from error

    def commit(self) -> bool:
        """Whether what was exchanged since the quorum counts."""
        return self._manager.should_commit()

    def taken(self) -> dict[str, Any] | None:
        """The state of a replica that is further, where the last quorum has brought one."""
        taken, self._taken = self._taken, None
        return taken

    def add(self, values: Tensor) -> Tensor:
        """The sum over the replicas, (n,) on the CPU; anything where ``commit`` will say no."""
        self._manager.allreduce(values, reduce_op=ReduceOp.SUM).wait()
        return values

    def average(self, tensors: list[Tensor]) -> None:
        """The mean over the replicas, in place; tensors of any device travel through the host's memory."""
        with torch.no_grad():
            for kind in dict.fromkeys(tensor.dtype for tensor in tensors):
                some = [tensor for tensor in tensors if tensor.dtype == kind]
                flat = self.add(torch.cat([tensor.reshape(-1) for tensor in some]).cpu())
                flat /= self.count
                for tensor, part in zip(some, flat.split([tensor.numel() for tensor in some]), strict=True):
                    tensor.copy_(part.view_as(tensor))

    def close(self) -> None:
        """Leave the others."""
        self._manager.shutdown(wait=False)

    def _take(self, state: dict[str, Any]) -> None:
        self._taken = state


def loopback_store(timeout: timedelta) -> TCPStore:
    """A store that other machines cannot reach; torch's own would listen on all interfaces."""
    listener = socket.create_server((HOST, 0))
    port = listener.getsockname()[1]
    return TCPStore(
        HOST,
        port,
        is_master=True,
        wait_for_workers=False,
        timeout=timeout,
        master_listen_fd=listener.detach(),
    )
