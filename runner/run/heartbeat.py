"""A small file that parent and ranks share in memory: beats and failures one way, the request to stop the other way.

It works the same under every launcher, whatever is between parent and ranks, and a beat costs no system call. Layout:
unsigned 64-bit words; word 0 is the number of the signal that asks to stop, then six words for each rank: beats, state,
process id, collectives, and the kind and bytes of the one at which it waits. Then ``REPORT_BYTES`` for each rank: how
it failed, as JSON. The file has its full size from the start, so a rank can report a failure when the disk is full, has
become read-only or hangs.

On one machine the file is in the run folder. File systems that machines share do not keep such memory coherent, so over
several machines each has its own file for its ranks, and its agent reports the content to the parent.
"""

import json
import math
import mmap
import os
import time
from array import array
from pathlib import Path
from typing import IO, Any, NamedTuple

from manyheads.runner.errors import ConfigurationError, Failure
from manyheads.runner.run.data_files import no_link
from manyheads.runner.run.files import make_folder, remove
from manyheads.runner.run.folder import Inode
from manyheads.runner.run.rank_info import RankInfo
from manyheads.runner.wording import size_in_words

STARTING, RUNNING, FINISHED, FAILED = range(4)
_WORD = 8
_PER_RANK = 6
REPORT_BYTES = 8192
_LENGTH = 4  # bytes of a report's length, which come first
PLACE = "MANYHEADS_HEARTBEAT"  # variable: this machine's folder for the file, up to its first rank's number
FILE = "MANYHEADS_HEARTBEAT_FILE"  # variable: device and number of the file in the run folder
Report = dict[str, Any]  # a Failure in JSON, with its time
# Kinds of collective operations by their numbers, as torch names them; the first one is any other.
OPERATIONS = (
    "operation",
    "all_reduce",
    "broadcast",
    "all_gather",
    "reduce_scatter",
    "all_to_all",
    "barrier",
    "reduce",
    "gather",
    "scatter",
    "send",
    "recv",
)


class Pending(NamedTuple):
    """A collective operation at which a rank waits. ``bytes``: of the tensors that it gave."""

    operation: str
    bytes: int

    @classmethod
    def of(cls, name: str, size: int) -> "Pending":
        """From torch's name of the operation, such as all_reduce, or allgather_into_tensor_coalesced."""
        plain = name.lower().replace("_", "")
        names = [operation for operation in OPERATIONS[1:] if operation.replace("_", "") in plain]
        return cls(max(names, key=len, default=OPERATIONS[0]), size)

    def __str__(self) -> str:
        article = "an" if self.operation[0] in "aeiou" else "a"
        size = f"{self.bytes} bytes" if self.bytes < 1000 else size_in_words(self.bytes)
        return f"{article} {self.operation} of {size}"


class Heartbeat:
    """Reads and writes the shared file. The parent creates it; each rank opens it with its own ``rank``."""

    def __init__(self, path: Path | None, *, rank: int = 0, ranks: int = 0, identity: str | None = None):
        """``path``: the file; None for memory that is not shared, for this number of ``ranks``.

        ``identity``: that of the only file that may be there; None: any. Raises OSError, and ConfigurationError for
        another file and for links.
        """
        self.path, self.identity = path, identity
        if path is None:
            shared = mmap.mmap(-1, _size(ranks))
        else:
            with open(path, "r+b", opener=no_link) as file:
                if identity not in (None, _identity(file)):
                    raise ConfigurationError(f"{path} is not the file that this run's parent created: it was replaced.")
                shared = mmap.mmap(file.fileno(), 0)
        self._share(shared, rank)

    def _share(self, shared: mmap.mmap, rank: int) -> None:
        self._map = shared
        self.ranks = (len(self._map) - _WORD) // (_PER_RANK * _WORD + REPORT_BYTES)
        self._words = memoryview(self._map).cast("Q")
        self._rank = rank
        self._own = 1 + _PER_RANK * rank

    @classmethod
    def of_rank(cls, rank_info: RankInfo, otherwise: Path) -> "Heartbeat":
        """A rank's heartbeat, in the file that its launcher names; ``otherwise``: the run folder's file."""
        folder = machine_folder(rank_info)
        if folder is not None:  # which only the user can enter
            return cls(folder / "heartbeat", rank=rank_info.rank)
        return cls(otherwise, rank=rank_info.rank, identity=os.environ.get(FILE))

    @classmethod
    def create(cls, path: Path, *, ranks: int) -> "Heartbeat":
        """Create the file, for this user alone: the processes whose ids are in it are ended. Raises OSError."""
        make_folder(path.parent)
        remove(path)
        heartbeat = cls(None, ranks=ranks)
        try:
            with open(path, "x+b", opener=_private) as file:
                file.write(bytes(_size(ranks)))
                file.flush()
                heartbeat.identity = _identity(file)
                heartbeat._share(mmap.mmap(file.fileno(), 0), 0)  # not by its name, which may be another's by now
        except OSError as error:  # that of a full disk names no file
            raise OSError(error.errno, error.strerror, str(path)) from error
        heartbeat.path = path
        return heartbeat

    def unreachable(self) -> OSError | ConfigurationError | None:
        """Why no rank can open the file, such as in a folder that has become read-only; None if one can."""
        try:
            if self.path is not None:
                Heartbeat(self.path, identity=self.identity)
        except (OSError, ConfigurationError) as error:
            return error
        return None

    @property
    def variables(self) -> dict[str, str]:
        """Variables by which ranks know the file in the run folder, where others may replace it."""
        return {} if self.identity is None else {FILE: self.identity}

    def enter(self) -> None:
        """Report that this rank is alive, with its process id."""
        self._words[self._own + 2] = os.getpid()
        self._words[self._own + 1] = RUNNING

    def beat(self) -> None:
        """Report that this rank makes progress."""
        self._words[self._own] += 1

    @property
    def own_beats(self) -> int:
        """The beats of this rank."""
        return self._words[self._own]

    @property
    def has_failed(self) -> bool:
        """Whether this rank has reported a failure."""
        return self.state(self._rank) == FAILED

    def leave(self, state: int) -> None:
        """Report how this rank ended, FINISHED or FAILED."""
        self._words[self._own + 1] = state

    def fail(self, error: BaseException) -> None:
        """Report how this rank failed. Its first failure counts: others happen while it ends."""
        if self.state(self._rank) != FAILED:
            self.report(Failure.of(error, rank=self._rank))
            self.leave(FAILED)

    def report(self, failure: Failure) -> None:
        """Write how this rank failed, and when; a long traceback or message is shortened."""
        content, start = _fitting({**failure.to_json(), "time": time.time()}), self._report_of(self._rank)
        self._map[start + _LENGTH : start + _LENGTH + len(content)] = content
        self._map[start : start + _LENGTH] = len(content).to_bytes(_LENGTH, "little")  # from now on it can be read

    def reports(self) -> list[Report]:
        """How ranks failed, in rank order; what cannot be read is skipped."""
        contents = (self._read_report(rank) for rank in range(self.ranks))
        return [report for report in contents if isinstance(report, dict)]

    def forget(self, rank: int) -> None:
        """Remove a rank's report, because the rank is restarted."""
        start = self._report_of(rank)
        self._map[start : start + _LENGTH] = bytes(_LENGTH)

    def note_collective(self, collective: int, pending: Pending | None = None) -> None:
        """Report which collective operation this rank has reached, counted since it joined, and where it waits."""
        kind, size = (0, 0) if pending is None else (1 + OPERATIONS.index(pending.operation), pending.bytes)
        self._words[self._own + 3 : self._own + 6] = array("Q", [collective, kind, size])

    def read(self, rank: int) -> list[int]:
        """All words of a rank, for ``write``."""
        return list(self._words[1 + _PER_RANK * rank : 1 + _PER_RANK * (rank + 1)])

    def write(self, rank: int, words: list[int]) -> None:
        """Record what a rank on another machine reported; its process id does not belong to this machine."""
        beats, state, _, *others = words
        unknown = [0] * (_PER_RANK - len(words))
        self._words[1 + _PER_RANK * rank : 1 + _PER_RANK * (rank + 1)] = array(
            "Q", [beats, state, 0, *others, *unknown]
        )

    @property
    def stop_signal(self) -> int:
        """The signal that asks to stop, or 0."""
        return self._words[0]

    @stop_signal.setter
    def stop_signal(self, signum: int) -> None:
        self._words[0] = signum

    def beats(self) -> int:
        """Beats of all ranks together; while it stays the same, no rank makes progress."""
        return sum(self._words[1 + _PER_RANK * rank] for rank in range(self.ranks))

    def state(self, rank: int) -> int:
        """What a rank has reported last: STARTING, RUNNING, FINISHED or FAILED."""
        return self._words[2 + _PER_RANK * rank]

    def pid(self, rank: int) -> int:
        """The rank's process id, or 0 before it has entered."""
        return self._words[3 + _PER_RANK * rank]

    def collective(self, rank: int) -> int:
        """The number of the collective operation that the rank has reached; 0 if it does not report it."""
        return self._words[4 + _PER_RANK * rank]

    def pending(self, rank: int) -> Pending | None:
        """The collective operation at which the rank waits; None if it waits at none, or does not report it."""
        kind, size = self._words[5 + _PER_RANK * rank], self._words[6 + _PER_RANK * rank]
        return Pending(OPERATIONS[kind - 1], size) if 0 < kind <= len(OPERATIONS) else None

    def _report_of(self, rank: int) -> int:
        """The offset of a rank's report."""
        return _WORD * (1 + _PER_RANK * self.ranks) + REPORT_BYTES * rank

    def _read_report(self, rank: int) -> object:
        start = self._report_of(rank)
        length = int.from_bytes(self._map[start : start + _LENGTH], "little")
        try:
            return json.loads(self._map[start + _LENGTH : start + _LENGTH + length]) if length else None
        except ValueError:
            return None


def machine_folder(rank_info: RankInfo) -> Path | None:
    """The run's folder on this machine alone, which only the user can enter; None for a run on one machine."""
    base = os.environ.get(PLACE)
    return None if base is None else Path(f"{base}{rank_info.rank - rank_info.local_rank}")


def _private(path: str, flags: int) -> int:
    """An opener for a new file that only this user can read and write, whatever the umask."""
    handle = no_link(path, flags)
    os.fchmod(handle, 0o600)
    return handle


def _identity(file: IO[bytes]) -> str:
    return ":".join(map(str, Inode.of(os.fstat(file.fileno()))))


def _size(ranks: int) -> int:
    return _WORD + ranks * (_PER_RANK * _WORD + REPORT_BYTES)


def _fitting(report: Report) -> bytes:
    """The report as JSON that fits: of a long traceback the end is kept, of a long message the beginning.

    A list of many allowed values, or a long value, is dropped.
    """
    while len(content := json.dumps(report).encode()) > REPORT_BYTES - _LENGTH:
        if trace := report["traceback"]:
            report["traceback"] = trace[len(trace) // 2 + 1 :]
        elif name := next((key for key in ("allowed", "value") if key in report), None):
            del report[name]
        else:
            report["message"] = report["message"][: len(report["message"]) // 2]
    return content


def failures_of(reports: list[Report]) -> list[Failure]:
    """The failures, the earliest first; one whose time is unknown comes last."""
    timed_failures = [(_time(report), failure) for report in reports if (failure := Failure.from_json(report))]
    return [failure for _, failure in sorted(timed_failures, key=lambda pair: pair[0])]


def _time(report: Report) -> float:
    written = report.get("time")
    return written if isinstance(written, (int, float)) else math.inf
