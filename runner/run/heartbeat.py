"""A small file that parent and ranks share in memory: beats of life one way, the request to stop the other.

It works alike under every launcher, whatever stands between parent and ranks, and a beat costs no system
call. Layout: unsigned 64-bit words; word 0 is the number of the signal that asks to stop, then three words
for each rank: beats, state, process id.
"""

import mmap
import os
from pathlib import Path

from manyheads.runner.run.data_files import no_link

STARTING, RUNNING, FINISHED, FAILED = range(4)
_WORD = 8
_PER_RANK = 3


class Heartbeat:
    """The parent creates the file; each rank opens it with its own ``rank``."""

    def __init__(self, path: Path, *, rank: int = 0):
        with open(path, "r+b", opener=no_link) as file:
            self._map = mmap.mmap(file.fileno(), 0)
        self._words = memoryview(self._map).cast("Q")
        self._own = 1 + _PER_RANK * rank
        self.ranks = (len(self._words) - 1) // _PER_RANK

    @classmethod
    def create(cls, path: Path, *, ranks: int) -> "Heartbeat":
        path.parent.mkdir(parents=True, exist_ok=True)
        path.unlink(missing_ok=True)
        with open(path, "xb", opener=no_link) as file:
            file.write(bytes(_WORD * (1 + _PER_RANK * ranks)))
        return cls(path)

    def enter(self) -> None:
        """Say that this rank lives, and under which process id."""
        self._words[self._own + 2] = os.getpid()
        self._words[self._own + 1] = RUNNING

    def beat(self) -> None:
        self._words[self._own] += 1

    def leave(self, state: int) -> None:
        self._words[self._own + 1] = state

    @property
    def stop_signal(self) -> int:
        """The signal that asks to stop, or 0."""
        return self._words[0]

    @stop_signal.setter
    def stop_signal(self, signum: int) -> None:
        self._words[0] = signum

    def beats(self) -> int:
        """Beats of all ranks together; standing still means that no rank got anywhere."""
        return sum(self._words[1 + _PER_RANK * rank] for rank in range(self.ranks))

    def state(self, rank: int) -> int:
        return self._words[2 + _PER_RANK * rank]

    def pid(self, rank: int) -> int:
        """The rank's process id, or 0 before it has entered."""
        return self._words[3 + _PER_RANK * rank]
