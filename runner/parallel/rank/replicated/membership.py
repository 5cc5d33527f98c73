"""The members of an update, and what they exchange: torchft's manager of one rank of a replica."""

import logging
import os
import zlib
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import torch
from torch import Tensor
from torch.distributed import ReduceOp
from torchft import Manager, ProcessGroupGloo

from manyheads.runner.parallel.rank.replicated.group import INSIDE_SECONDS, ReplicaGroup, store_on
from manyheads.runner.parallel.rank.replicated.healing import FolderTransport
from manyheads.runner.parallel.replicated import HOST, LIGHTHOUSE, PLACE
from manyheads.runner.run.checkpoint_places import StateDict

LOUD = ("torchft", "torchft_commits", "torchft_quorums")
VOTE = timedelta(seconds=INSIDE_SECONDS)
AGREED, FAILED, RAISED = range(3)  # the outcome of a quorum for one rank


class Membership:
    """A replica among the live ones, seen by one rank of its ``group``, whose ranks take part in the same updates.

    Every method that exchanges something, or agrees on it, is called by all of them. ``standing``: returns the
    replica's state, complete on the group's first rank; ``step``: number of updates it has made.
    """

    def __init__(
        self, replica: int, group: ReplicaGroup, *, timeout: float, standing: Callable[[], StateDict], step: int
    ):
        self._group, self._standing = group, standing
        self._taken: StateDict | None = None
        self._history = 0
        self._error: Exception | None = None
        for name in LOUD:  # several lines for each update
            logging.getLogger(name).setLevel(logging.WARNING)
        seconds = timedelta(seconds=timeout)
        host = os.environ.get(HOST, "127.0.0.1")
        self._store = store_on(host, seconds) if group.rank == 0 else None
        self._transport = FolderTransport(Path(os.environ[PLACE]), replica, writes=group.rank == 0)
        self._manager = Manager(
            pg=ProcessGroupGloo(timeout=seconds),
            load_state_dict=self._take,
            state_dict=dict,  # see FolderTransport
            min_replica_size=1,
            use_async_quorum=False,  # shares are drawn after the quorum
            timeout=seconds,
            quorum_timeout=seconds,
            connect_timeout=seconds,
            rank=group.rank,
            world_size=group.size,
            store_addr=host,
            store_port=group.first(self._store and self._store.port),
            lighthouse_addr=os.environ[LIGHTHOUSE],
            replica_id=f"replica_{replica}",
            hostname=host,
            checkpoint_transport=self._transport,
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
        """The index of this replica's share of the next update."""
        share = self._manager.participating_rank()
        assert share is not None
        return share

    @property
    def count(self) -> int:
        """The number of replicas in the update."""
        return self._manager.num_participants()

    def enter(self, idle: Callable[[], bool]) -> bool:
        """Agree on the members; returns whether that succeeded. Raises RuntimeError if the run is to stop.

        A quorum counts for all ranks of the replica or for none. ``idle``: called between attempts; returns whether to
        stop.
        """
        while True:
            before = self._manager.state_dict(), self._history
            outcome = self._quorum()
            numbers = [self._manager._quorum_id, self.step]
            maxima = self._group.most([outcome, self._transport.is_wanted, *numbers, *(-n for n in numbers)])
            worst, is_wanted, (most, least) = maxima[0], maxima[1], (maxima[2:4], maxima[4:])
            if worst == AGREED and most == [-number for number in least]:
                if is_wanted:
                    self._offer()
                return True
            self._manager.load_state_dict(before[0])
            self._taken, self._history = None, before[1]
            if worst < RAISED:
                self._manager.report_error(RuntimeError("not all ranks of the replica are in the same quorum"))
                return False
            if self._group.most([idle()])[0]:
                raise RuntimeError(f"asked to stop while no quorum could be formed: {self._error}") from self._error

    def commit(self) -> bool:
        """Whether the exchanges since the quorum count, since no rank of the replica has seen one fail."""
        step, quorum = self._manager.current_step(), self._manager._quorum_id
        if not self._manager.should_commit(timeout=VOTE):
            return False
        self._transport.forget()
        self._history = zlib.crc32(f"{self._history} {step} {quorum} {self.count}".encode()) or 1
        return True

    @property
    def history(self) -> Tensor:
        """A digest of the members of this replica's updates, (count,), at its index; other members add theirs.

        A replica that was cut off may have made an update that the others do not know, and have repeated.
        """
        numbers = torch.zeros(self.count, dtype=torch.float64)
        numbers[self.share] = self._history  # 0: it started from a checkpoint and has made no update
        return numbers

    def compare(self, histories: Tensor) -> None:
        """Reject an update whose members have different histories. Raises RuntimeError if this replica must restart.

        ``histories``: the sum of all members' ``history``; a replica without one adopts the first.
        """
        numbers = [int(number) for number in histories.tolist() if number]
        if self._manager.errored() is not None or not numbers:
            return
        if any(number != numbers[0] for number in numbers):
            if self._history not in (0, numbers[0]):
                raise RuntimeError("the other replicas have repeated an update that this one had already made.")
            self._manager.report_error(RuntimeError("the members of this update have different histories"))
        elif not self._history:
            self._history = numbers[0]

    def taken(self) -> StateDict | None:
        """The state of a replica that is ahead, if the last quorum has brought one; else None."""
        taken, self._taken = self._taken, None
        return taken

    def add(self, values: Tensor) -> Tensor:
        """The sum over the replicas, (n,) on the CPU; arbitrary if ``commit`` then returns False."""
        self._manager.allreduce(values, reduce_op=ReduceOp.SUM).wait()
        return values

    def average(self, tensors: list[Tensor], *, inside: bool) -> None:
        """The mean over the replicas, in place; tensors of any device pass through the host's memory.

        ``inside``: whether it is the mean over the ranks of each replica too, of which each then exchanges one part
        with the other replicas; otherwise, each rank has tensors of its own.
        """
        group = self._group if inside else ReplicaGroup(0, 1)
        with torch.no_grad():
            for kind in dict.fromkeys(tensor.dtype for tensor in tensors):
                some = [tensor for tensor in tensors if tensor.dtype == kind]
                flat = torch.cat([tensor.reshape(-1) for tensor in some]).cpu()
                mean = group.gathered(self.add(group.scattered(flat)))[: len(flat)] / (self.count * group.size)
                for tensor, part in zip(some, mean.split([tensor.numel() for tensor in some]), strict=True):
                    tensor.copy_(part.view_as(tensor))

    def close(self) -> None:
        """Leave the other replicas."""
        self._manager.shutdown(wait=False)

    def _quorum(self) -> int:
        self._transport.is_wanted = False
        try:
            self._manager.start_quorum()
        except Exception as error:  # of any kind
            self._manager._quorum_future, self._error = None, error  # or it would be raised again for ever
            return RAISED
        return AGREED if self._manager.errored() is None else FAILED

    def _offer(self) -> None:
        """Offer this replica's state to those that are behind; if that fails, the update is repeated."""

        def state() -> StateDict:
            replica_state = {"state": self._standing(), "history": self._history}
            return {"user": {"default": replica_state}, "torchft": self._manager.state_dict()}

        try:
            self._transport.offer(self.step, state)
        except OSError as error:  # such as of a full disk
            self._manager.report_error(error)

    def _take(self, state: StateDict) -> None:
        self._taken, self._history = state["state"], state["history"]
