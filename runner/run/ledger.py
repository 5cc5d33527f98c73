"""The ledger of a sweep: one line of JSON for each change of a job's state, on disk before anything else happens."""

import json
import os
import secrets
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from manyheads.runner.errors import ConfigurationError
from manyheads.runner.run import seal
from manyheads.runner.run.data_files import no_link, parse_json, read_bytes, read_text
from manyheads.runner.run.files import exclusive, is_locked, make_folder, write_whole
from manyheads.runner.run.run_folder import LEDGER

JUDGED = "judgement.jsonl"  # of runs that were measured against each other, which lists leave out
MOST_BYTES = 2**28  # some hundred thousand jobs
EARLIER = "an earlier run"  # the reason of a job that was completed by one, and did not run
STATES = ("pending", "running", "completed", "pruned", "failed", "skipped", "interrupted")


@dataclass(frozen=True)
class Entry:
    """One job of a sweep, or one repeat of it, with its current state. ``folder`` is relative to the sweep's."""

    job: int
    folder: str
    overrides: list[str]  # as the sweeper chose them, such as parallel=ddp
    repeat: int = 1
    signature: str | None = None  # of the run config; None for one that was refused
    state: str = "pending"
    reason: str | None = None  # why it was skipped, how it failed, that it is an earlier run
    out_of_memory: bool = False
    split: int = 1  # micro-batches that one micro-batch was split into because memory ran out
    objective: float | None = None
    time: float = field(default_factory=time.time)  # of this line, in seconds since 1970

    def check(self) -> None:
        """Raises TypeError for values that do not have the declared type."""
        if not all(type(n) is int and n >= 0 for n in (self.job, self.repeat, self.split)) or not self.split:
            raise TypeError("job, repeat and split are integers")
        texts = [self.folder, self.state, self.signature or "", self.reason or ""]
        if not isinstance(self.overrides, list) or not all(isinstance(word, str) for word in texts + self.overrides):
            raise TypeError("folder, state, signature and reason are strings, overrides a list of strings")
        if self.state not in STATES:
            raise TypeError(f"state is one of {', '.join(STATES)}")
        if not all(type(n) in (int, float) for n in (self.objective or 0, self.time)):
            raise TypeError("objective and time are numbers")

    def now(self, state: str, **changes: Any) -> "Entry":
        """The same job in another state."""
        return replace(self, **{"reason": None, "out_of_memory": False, "time": time.time(), **changes, "state": state})


class Ledger:
    """``<sweep>/ledger.jsonl``: a first line about the sweep, then entries; a job's last entry counts."""

    def __init__(self, sweep: str | Path):
        self.sweep = Path(sweep).resolve()
        self.path = self.sweep / LEDGER

    def exists(self) -> bool:
        return self.path.exists()

    def name_of(self, folder: Path) -> str:
        """A job's folder as an entry names it. ``folder``: a ``RunFolder``'s path, in which links are resolved too."""
        return os.path.relpath(folder, self.sweep)

    def create(
        self, options: dict[str, Any], *entries: Entry, arguments: Sequence[str] = (), is_search: bool = False
    ) -> None:
        """Create the ledger. ``options``: how the sweep runs its jobs.

        ``arguments``: the command line, from which the jobs are planned again until they are in the ledger. What it
        names is relative to the working directory, which is recorded with it.
        ``is_search``: resume always repeats the command line, since more trials must be proposed.
        """
        make_folder(self.sweep)
        about = {"id": secrets.token_hex(8), "options": options, "is_search": is_search}
        about |= {"arguments": [*arguments], "directory": os.getcwd()}
        first = json.dumps(about)
        seal.record(self.sweep, {LEDGER: first})
        write_whole(self.path, first + "\n" + _lines_of(entries))

    def sealed_part(self) -> dict[str, bytes]:
        """The part of the ledger that is sealed with the sweep: its first line, which never changes."""
        return {LEDGER: read_bytes(self.path, most=MOST_BYTES).partition(b"\n")[0]}

    def add(self, *entries: Entry) -> None:
        """Append new jobs, all or none of them. The file is replaced, so that nobody holds a lock on it afterwards."""
        content = read_bytes(self.path, most=MOST_BYTES)
        write_whole(self.path, content[: content.rfind(b"\n") + 1] + _lines_of(entries).encode())

    def write(self, *entries: Entry) -> None:
        """Append lines and sync them, after removing an incomplete line of a killed writer."""
        with open(self.path, "r+b", opener=no_link) as file:
            if file.seek(0, os.SEEK_END):
                file.seek(-1, os.SEEK_END)
                if file.read(1) != b"\n":
                    file.seek(0)
                    file.truncate(file.read().rfind(b"\n") + 1)
                    file.seek(0, os.SEEK_END)
            try:
                file.write(_lines_of(entries).encode())
                file.flush()
                os.fsync(file.fileno())
            except OSError as error:  # that of a full disk names no file
                raise OSError(error.errno, error.strerror, str(self.path)) from error

    def options(self) -> dict[str, Any]:
        """How the sweep runs its jobs. Raises ConfigurationError."""
        options = self._lines()[0].get("options", {})
        if not isinstance(options, dict):
            raise ConfigurationError(f"{self.path} cannot be read: its options are not a mapping.")
        return options

    def about(self, sealed: Mapping[str, bytes]) -> Mapping[str, Any]:
        """The first line, parsed. ``sealed``: from ``sealed_part``. Raises ConfigurationError."""
        return self._parsed(sealed[LEDGER].decode(errors="replace") + "\n")[0]

    def arguments(self, sealed: Mapping[str, bytes]) -> list[str]:
        """The command line in the first line, which plans the jobs again. Raises ConfigurationError."""
        arguments = self.about(sealed).get("arguments", [])
        if not isinstance(arguments, list) or not all(isinstance(argument, str) for argument in arguments):
            raise ConfigurationError(f"{self.path} cannot be read: its arguments are not a list of strings.")
        return arguments

    def restarting(self, sealed: Mapping[str, bytes]) -> list[str] | None:
        """The arguments of the command that resumes the sweep; None if its jobs are resumed from their folders."""
        return self.arguments(sealed) if self.about(sealed).get("is_search") or not self.entries() else None

    def entries(self) -> list[Entry]:
        """Each job with its current state, in the order in which they were planned."""
        names = {entry.name for entry in fields(Entry)}
        entries: dict[tuple[int, int], Entry] = {}
        for line in self._lines()[1:]:
            try:
                entry = Entry(**{key: value for key, value in line.items() if key in names})
                entry.check()
            except TypeError as error:
                raise ConfigurationError(f"{self.path} cannot be read: {error}.") from None
            entries[entry.job, entry.repeat] = entry
        return list(entries.values())

    def is_active(self) -> bool:
        """Whether a process is working on the sweep."""
        return is_locked(self.path)

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Only one process at a time may work on a sweep. Raises ConfigurationError when another one does."""
        with exclusive(self.path, of=self.sweep):
            yield

    def _lines(self) -> list[dict[str, Any]]:
        try:
            text = read_text(self.path, most=MOST_BYTES)
        except FileNotFoundError:
            raise ConfigurationError(f"{self.sweep} is not a sweep folder: it has no {LEDGER}.") from None
        return self._parsed(text)

    def _parsed(self, text: str) -> list[dict[str, Any]]:
        try:
            lines = [parse_json(line) for line in text[: text.rfind("\n") + 1].splitlines()]
        except (ValueError, RecursionError) as error:
            raise ConfigurationError(f"{self.path} cannot be read: {error}.") from None
        if not lines or not all(isinstance(line, dict) for line in lines):
            raise ConfigurationError(f"{self.path} cannot be read: it is not a sweep's ledger.")
        return lines


def _lines_of(entries: Iterable[Entry]) -> str:
    return "".join(json.dumps(asdict(entry), default=str) + "\n" for entry in entries)
