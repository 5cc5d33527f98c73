"""Loader processes: they take turns at building batches ahead, in memory that each shares with its rank.

A process is sent requests with the numbers of slots that are free again; it answers with the number of the slot that it
filled. Answers are short, so it never waits for the rank to read them.
"""

import gc
import math
import mmap
import multiprocessing
import os
import pickle
import signal
import time
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import suppress
from itertools import chain, islice
from multiprocessing.connection import Connection
from multiprocessing.reduction import recv_handle, send_handle
from typing import Any

import torch
from torch._utils import ExceptionWrapper
from torch.utils.data import default_collate

from manyheads.runner.data.rank.batches import Batch, BatchDataset
from manyheads.runner.data.rank.sampler import BatchIndices
from manyheads.runner.data.rank.slots import BatchSlot, Filling, new_memory, unpack
from manyheads.runner.errors import ConfigurationError
from manyheads.runner.machine.process import die_with_parent, heard_signals
from manyheads.runner.run.data_files import without_collector

WAITING = 0.1  # fraction of the time that a rank may wait for batches before more processes are started
AHEAD = 2  # batches that each process is asked for before the first of them is needed
GRACE = 1.0  # seconds that processes have to end
HEADROOM = 1.1  # of new slots: batches differ in size
# By default, a rank forked from a server would start its children from another server, whose death nobody would notice.
FORK = multiprocessing.get_context("fork")


class Workers:
    """At most ``count`` processes that build batches: one at first, and twice as many whenever the rank waits for them.

    They start with the first request, and end with ``close``.
    """

    def __init__(self, batches: BatchDataset, count: int):
        self._batches, self._most, self._count = batches, count, 1
        self._taken, self._waited, self._since = 0, 0.0, -math.inf  # batches, seconds, and since when
        self._workers: deque[_Worker] = deque()  # the next one first
        self._asked: deque[tuple[bytes, _Worker]] = deque()  # requests whose batches have not been taken, in order

    def fetch(
        self, requests: Iterator[BatchIndices], following: Iterable[BatchIndices] = ()
    ) -> Iterator[Batch | ConfigurationError]:
        """The batches of ``requests``, in order; the first of ``following`` are then built for the next call.

        Raises what the data set raises, and RuntimeError for a process that has ended.
        """
        remaining, left = self._continued(map(pickle.dumps, requests))
        coming = chain(((request, 1) for request in left), ((pickle.dumps(request), 0) for request in following))
        remaining += self._ask(coming)
        while remaining:
            batch = self._answer()
            remaining += self._ask(coming) - 1
            if isinstance(batch, ExceptionWrapper):
                batch.reraise()
            yield batch

    def close(self) -> None:
        """End the processes. Each would end with this one, too."""
        deadline = time.monotonic() + GRACE
        for worker in self._workers:
            worker.dismiss()
        for worker in self._workers:
            worker.end(deadline)
        self._workers.clear()
        self._asked.clear()

    def _continued(self, requests: Iterator[bytes]) -> tuple[int, Iterator[bytes]]:
        """How many of these requests are being answered already, and the rest; answers to others are dropped."""
        first = list(islice(requests, len(self._asked)))
        if first == [request for request, _ in self._asked]:
            return len(first), requests
        while self._asked:
            self._asked.popleft()[1].answer()
        return 0, chain(first, requests)

    def _answer(self) -> Any:
        """The next batch; also decides whether there are enough processes, by the time that the last ones took."""
        began = time.perf_counter()
        batch = self._asked.popleft()[1].answer()
        now = time.perf_counter()
        self._waited += now - began
        self._taken += 1
        if self._taken >= 2 * AHEAD * self._count:
            if self._waited > WAITING * (now - self._since):  # never of the first ones, which nobody built ahead
                self._count = min(self._most, 2 * self._count)
            self._taken, self._waited, self._since = 0, 0.0, now
        return batch

    def _ask(self, coming: Iterator[tuple[bytes, int]]) -> int:
        """Keep all processes busy; returns how many of the new requests count."""
        while len(self._workers) < self._count:
            self._workers.appendleft(_Worker(len(self._workers), self._batches))
        total = 0
        for request, counts in islice(coming, AHEAD * self._count - len(self._asked)):
            self._workers[0].ask(request)
            self._asked.append((request, self._workers[0]))
            self._workers.rotate(-1)
            total += counts
        return total


class _Worker:
    """A loader process as its rank sees it."""

    def __init__(self, number: int, batches: BatchDataset):
        self._channel, theirs = FORK.Pipe()
        self._process = FORK.Process(target=_work, args=(number, batches, theirs), daemon=True)
        with without_collector():
            self._process.start()
        theirs.close()
        self._slots, self._free = dict[int, BatchSlot](), deque[int]()

    def ask(self, request: bytes) -> None:
        with suppress(ConnectionError):  # it has ended, as its answer will say
            self._channel.send((request, [self._free.popleft() for _ in range(len(self._free))]))

    def answer(self) -> Any:
        try:
            number, size, offset, length = self._channel.recv()
            if size:
                self._slots[number] = BatchSlot(recv_handle(self._channel), size)
        except (EOFError, ConnectionError):
            raise RuntimeError(f"a loader process exited unexpectedly{self._cause()}.") from None
        slot, free = self._slots[number], self._free
        return unpack(slot.content[offset : offset + length], slot.memory(lambda: free.append(number)))

    def dismiss(self) -> None:
        with suppress(ConnectionError):
            self._channel.send(None)

    def end(self, deadline: float) -> None:
        self._process.join(max(0.0, deadline - time.monotonic()))
        self._process.kill()
        self._process.join()
        self._channel.close()

    def _cause(self) -> str:
        self._process.join(GRACE)
        code = self._process.exitcode or 0
        if code >= 0:
            return f" with exit code {code}"
        memory = ", as the system does when memory runs out" if code == -signal.SIGKILL else ""
        return f": it was ended by {signal.Signals(-code).name}{memory}"


def _work(number: int, batches: BatchDataset, channel: Connection) -> None:
    """Answer requests until dismissed."""
    _enter()
    slots, free, collates = dict[int, BatchSlot](), list[int](), batches.collate is default_collate
    for request, freed in iter(channel.recv, None):
        free += freed
        chosen = free.pop() if free else len(slots)
        filling = Filling(slots.get(chosen))
        if collates:
            batches.collate = filling.collate
        try:
            content = filling.pack(batches[pickle.loads(request)])
        except Exception as error:
            filling = Filling(None)
            cause = str(error).partition("\n")[0].rstrip(".")  # first, since the last line printed has no other
            content = filling.pack(ExceptionWrapper(where=f"in loader process {number}: {cause}"))
        needs, handle = filling.needs + len(content), None
        if chosen not in slots or slots[chosen].size < needs:
            size = math.ceil(needs * HEADROOM / mmap.PAGESIZE) * mmap.PAGESIZE
            handle = new_memory(size)
            slots[chosen] = BatchSlot(os.dup(handle), size)
        slot = slots[chosen]
        filling.complete(slot)
        slot.content[filling.needs : needs] = content
        channel.send((chosen, 0 if handle is None else slot.size, filling.needs, len(content)))
        if handle is not None:
            send_handle(channel, handle, None)
            os.close(handle)
        del filling


def _enter() -> None:
    die_with_parent()
    for number in heard_signals():
        signal.signal(number, signal.SIG_DFL)  # the rank's own handlers only take note
    gc.freeze()  # never finalize the rank's objects here, such as a process group, whose threads this process lacks
    gc.enable()
    torch.set_num_threads(1)
