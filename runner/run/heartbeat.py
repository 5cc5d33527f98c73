"""A small file that parent and ranks share in memory: beats of life one way, the request to stop the other way.

It works the same under every launcher, whatever is between parent and ranks, and a beat costs no system call. Layout:
unsigned 64-bit words; word 0 is the number of the signal that asks to stop, then four words for each rank: beats,
state, process id, collectives.

On one machine the file is in the run folder. File systems that machines share do not keep such memory coherent, so over
several machines each has its own file for its ranks, and its agent reports the content to the parent.
"""

import mmap
import os
from array import array
from pathlib import Path

from manyheads.runner.run.data_files import no_link
from manyheads.runner.run.rank_env import Place

STARTING, RUNNING, FINISHED, FAILED = range(4)
_WORD = 8
_PER_RANK = 4
PLACE = "MANYHEADS_HEARTBEAT"  # the variable that says where this machine's file is, up to its first rank's number


class Heartbeat:
    """The parent creates the file; each rank opens it with its own ``rank``."""

    def __init__(self, path: Path | None, *, rank: int = 0, ranks: int = 0):
        """``path``: the file; None for one that nobody else sees, for so many ``ranks``."""
        self.path = path
        if path is None:
            self._map = mmap.mmap(-1, _size(ranks))
        else:
            with open(path, "r+b", opener=no_link) as file:
                self._map = mmap.mmap(file.fileno(), 0)
        self._words = memoryview(self._map).cast("Q")
        self._own = 1 + _PER_RANK * rank
        self.ranks = (len(self._words) - 1) // _PER_RANK

    @classmethod
    def of_rank(cls, place: Place, otherwise: Path) -> "Heartbeat":
        """A rank's own, from where its launcher says; ``otherwise``: the run folder's."""
        base = os.environ.get(PLACE)
        path = otherwise if base is None else Path(f"{base}{place.rank - place.local_rank}", "heartbeat")
        return cls(path, rank=place.rank)

    @classmethod
    def create(cls, path: Path, *, ranks: int) -> "Heartbeat":
        """A new file. Raises an OSError that names it."""
        path.parent.mkdir(parents=True, exist_ok=True)
        path.unlink(missing_ok=True)
        try:
            with open(path, "xb", opener=no_link) as file:
                file.write(bytes(_size(ranks)))
        except OSError as error:  # a full disk names no file
            raise OSError(error.errno, error.strerror, str(path)) from error
        return cls(path)

    def enter(self) -> None:
        """Say that this rank lives, and under which process id."""
        self._words[self._own + 2] = os.getpid()
        self._words[self._own + 1] = RUNNING

    def beat(self) -> None:
        self._words[self._own] += 1

    def leave(self, state: int) -> None:
        self._words[self._own + 1] = state

    def came_to(self, collective: int) -> None:
        """Say which collective operation this rank has come to, by their number since it joined."""
        self._words[self._own + 3] = collective

    def read(self, rank: int) -> list[int]:
        """All words of a rank, for ``write``."""
        return list(self._words[1 + _PER_RANK * rank : 1 + _PER_RANK * (rank + 1)])

    def write(self, rank: int, words: list[int]) -> None:
        """Record what a rank on another machine reported; its process id does not belong to this machine."""
        beats, state, _, *others = words
        self._words[1 + _PER_RANK * rank : 1 + _PER_RANK * (rank + 1)] = array("Q", [beats, state, 0, *others])

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

    def collective(self, rank: int) -> int:
        """Which collective operation the rank has come to; 0 where it does not say."""
        return self._words[4 + _PER_RANK * rank]


def _size(ranks: int) -> int:
    return _WORD * (1 + _PER_RANK * ranks)
