"""The store through which the ranks of another launcher exchange messages: torch's TCPStore, or a private folder.

Messages are text, of JSON; nothing in them is ever unpickled. A program beside the rank (rank.py) reaches torch's
store for it: the rank itself imports torch once it is set up for it.
"""

import hashlib
import json
import os
import stat
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Protocol

from manyheads.launchers.agent_program import as_module
from manyheads.launchers.environment import common
from manyheads.launchers.foreign.world import World
from manyheads.runner.errors import ConfigurationError
from manyheads.runner.run import scratch
from manyheads.runner.run.data_files import read_text
from manyheads.runner.run.program import DISCARD, PIPE, Process, Program

PREFIX = "manyheads"
PROGRAM = "manyheads.launchers.foreign.rank"


class RankStore(Protocol):
    """Texts by key, seen by all ranks. ``meeting``: where the ranks of an attempt meet, for MANYHEADS_MEETING."""

    def set(self, key: str, text: str) -> None:
        """Keep a text, in place of an earlier one. Raises ConfigurationError if the store cannot be reached."""

    def get(self, key: str) -> str | None:
        """The text of a key; None if there is none yet. Raises as ``set``."""

    def meeting(self, attempt: str) -> str:
        """Where the process group of this attempt meets."""


class FolderStore:
    """A file for each key, in a folder that only this user can enter."""

    def __init__(self, path: Path):
        self._path = path

    def set(self, key: str, text: str) -> None:
        """Nothing is kept while the folder is missing: rank 0 creates it, so the others repeat what they have set."""
        with suppress(FileNotFoundError):
            held = self._path.lstat()
            if held.st_uid != os.getuid() or not stat.S_ISDIR(held.st_mode) or held.st_mode & 0o077:
                raise ConfigurationError(f"{self._path} is not a folder that only you can enter. Remove it.")
            beside = self._path / f".{key}-{os.getpid()}"
            beside.write_text(text)
            beside.replace(self._path / key)

    def get(self, key: str) -> str | None:
        with suppress(FileNotFoundError):
            return read_text(self._path / key)
        return None

    def meeting(self, attempt: str) -> str:
        return str(self._path / f"meeting-{attempt}")


class TorchStore:
    """Torch's TCPStore at the ranks' meeting point. ``seconds``: how long to wait until it can be reached."""

    def __init__(self, process: Process, world: World, seconds: float):
        self._process, self._world, self._seconds, self._begun = process, world, seconds, False

    def set(self, key: str, text: str) -> None:
        self._ask([f"{PREFIX}/{key}", text])

    def get(self, key: str) -> str | None:
        answer = self._ask([f"{PREFIX}/{key}"])
        return answer if isinstance(answer, str) else None

    def meeting(self, attempt: str) -> str:
        return f"tcp://{self._world.address} {self._world.port} {PREFIX}/{attempt}"

    def _ask(self, request: list[str]) -> object:
        if not self._begun:
            self._begun = True
            self._read()
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):  # the reason is in its output
            self._process.stdin.write(json.dumps(request).encode() + b"\n")
            self._process.stdin.flush()
        return self._read()

    def _read(self) -> object:
        assert self._process.stdout is not None
        answer = json.loads(self._process.stdout.readline() or b'{"error": "its process ended"}')
        if isinstance(answer, dict) and (why := answer.get("error")):
            raise self._unreachable(str(why))
        return answer

    def _unreachable(self, why: str) -> ConfigurationError:
        endpoint = f"MASTER_ADDR={self._world.address} MASTER_PORT={self._world.port}"
        if "EADDRINUSE" in why or "address already in use" in why.lower():
            why = "another program listens on that port of this machine, perhaps a run that has not ended"
            return ConfigurationError(f"{endpoint}: {why}. Choose a free port, for all ranks.", key="MASTER_PORT")
        return ConfigurationError(
            f"{endpoint}: rank {self._world.rank} cannot reach the other ranks there: {why}. Rank 0 must run on that "
            "machine, and the port must be open.",
            key="MASTER_ADDR",
        )


@contextmanager
def store_of(world: World, *, seconds: float) -> Iterator[RankStore]:
    """The store of these ranks; rank 0 creates it where the launcher has none. Raises OSError.

    It lasts as long as the context of rank 0, unless the launcher keeps it.
    """
    if world.address is None:
        name = hashlib.sha256(f"{world.by} {world.job}".encode()).hexdigest()[:16]
        path = Path(scratch.base(), f"manyheads-{name}-0")
        if world.rank:
            yield FolderStore(path)
            return
        with scratch.own_folder(path):
            yield FolderStore(path)
        return
    hosts = world.rank == 0 and not world.is_kept
    arguments = [world.address, str(world.port), str(int(hosts)), str(seconds)]
    helper = Program([sys.executable, *as_module(PROGRAM), *arguments], {**os.environ, **common()})
    process = helper.start(stdin=PIPE, stdout=PIPE, stderr=DISCARD)
    try:
        yield TorchStore(process, world, seconds)
    finally:
        assert process.stdin is not None
        with suppress(BrokenPipeError):
            process.stdin.close()
        process.kill()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()


def pause() -> None:
    """Between two looks at the store."""
    time.sleep(0.05)
