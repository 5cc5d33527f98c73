"""The meeting of ranks that another launcher has started: each asks rank 0 for the run; they begin once all have it.

Keys of the store: ``ask-<rank>``, a rank's request, with a new number each time it is started; ``answer-<number>``, the
run or why there is none; ``seen-<attempt>-<rank>``, whether that rank's machine has the run folder; ``go-<attempt>``,
rank 0's word that all are there; ``left-<attempt>-<rank>``, that a rank ends without a run; and ``folder``, the run's,
for later attempts. So what an earlier attempt has left in the store misleads nobody.
"""

import hashlib
import json
import os
import secrets
import socket
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, fields
from importlib import metadata
from pathlib import Path
from typing import Any

from manyheads import __version__
from manyheads.launchers.foreign.conventions import PLAIN
from manyheads.launchers.foreign.stores import RankStore, pause
from manyheads.launchers.foreign.world import World
from manyheads.runner.errors import ConfigurationError, Interrupted
from manyheads.runner.machine import hardware

Message = Mapping[str, Any]
REFUSAL_SECONDS = 30.0  # that the other ranks have to ask, and to be told that there is no run


@dataclass(frozen=True)
class Ask:
    """A rank's request for the run. ``words``: digest of its command line; ``machine``: as ``machine()``.

    ``gpu``: the identifier of the only GPU that it sees; empty if it sees several, or none.
    """

    rank: int
    size: int
    words: str
    software: str
    local_rank: int
    machine: str
    host: str = field(default_factory=socket.gethostname)
    pid: int = field(default_factory=os.getpid)
    number: str = field(default_factory=lambda: secrets.token_hex(8))
    gpu: str = field(default_factory=lambda: "".join(ids) if len(ids := hardware.gpu_ids()) == 1 else "")

    @classmethod
    def of(cls, world: World, words: Sequence[str]) -> "Ask":
        """This process's."""
        torch = metadata.version("torch")
        digest = hashlib.sha256(json.dumps([*words]).encode()).hexdigest()
        software = f"manyheads {__version__}, torch {torch}"
        return cls(world.rank, world.size, digest, software, world.local_rank, machine())

    def __str__(self) -> str:
        return f"rank {self.rank} (process {self.pid} on {self.host})"


def machine() -> str:
    """An identifier of this machine, or container: processes with the same one can see each other."""
    parts = [socket.gethostname(), *([str(os.stat("/proc/self/ns/pid").st_ino)] if os.path.exists("/proc") else [])]
    with suppress(OSError):
        parts.append(Path("/proc/sys/kernel/random/boot_id").read_text().strip())
    return " ".join(parts)


class Lead:
    """Rank 0's part. ``seconds``: how long it waits for the others."""

    def __init__(self, world: World, words: Sequence[str], store: RankStore, *, seconds: float):
        self.world, self.store, self.attempt = world, store, secrets.token_hex(8)
        self.own, self._seconds, self.is_done = Ask.of(world, words), seconds, False

    @property
    def meeting(self) -> str:
        """Where this attempt's process group meets."""
        return self.store.meeting(self.attempt)

    def earlier_folder(self) -> str | None:
        """The run folder of an earlier attempt of this job, if the launcher's store has kept it."""
        return self.store.get("folder") if self.world.is_kept else None

    def publish(self, order: Message, signals: Sequence[int]) -> tuple[list[Ask], list[Message]]:
        """Give the others the run, and wait until all have seen it: what they said of themselves, and of the run.

        Raises ConfigurationError for ranks that do not belong together, Interrupted after a signal.
        """
        self.store.set("folder", order["folder"])
        asks = self._answer(order, "seen", self._seconds, signals)
        if missing := [rank for rank in range(1, self.world.size) if rank not in asks]:
            named = ", ".join(map(str, missing[:8])) + ", ..." * (len(missing) > 8)
            raise ConfigurationError(
                f"of the {self.world.size} ranks that {self.world.by} has started, {named} did not ask for the run "
                f"within launcher.start_timeout={self._seconds:g} seconds. Every rank must run this command.",
                key="launcher.start_timeout",
            )
        return list(asks.values()), [self._report("seen", rank) for rank in asks]

    def go(self) -> None:
        """Let the others begin."""
        self.is_done = True
        self.store.set(f"go-{self.attempt}", json.dumps({"code": 0}))

    def dismiss(self, code: int) -> None:
        """End the others, which have begun nothing, with this exit code; returns once they have heard it."""
        self.is_done = True
        order = {"code": code, "ends": True, "machine": self.own.machine, "parent": self.own.pid}
        self.store.set(f"go-{self.attempt}", json.dumps(order))
        self._answer(order, "left", REFUSAL_SECONDS, ())

    def _answer(self, order: Message, key: str, seconds: float, signals: Sequence[int]) -> dict[int, Ask]:
        """Answer the ranks that ask until each has set this key, or the time is over; returns those that have."""
        asked: dict[int, Ask] = {}
        heard: dict[int, Ask] = {}
        deadline = time.monotonic() + seconds
        while len(heard) < self.world.size - 1 and time.monotonic() < deadline:
            for rank in range(1, self.world.size):
                ask = _ask(self.store.get(f"ask-{rank}"))
                if ask is not None and asked.get(rank) != ask:
                    if "ends" not in order:
                        self._refuse_other(ask, heard.get(rank), list(heard.values()))
                    asked[rank] = ask
                    self.store.set(f"answer-{ask.number}", json.dumps({**order, "attempt": self.attempt}))
                if rank in asked and self._report(key, rank).get("number") == asked[rank].number:
                    heard[rank] = asked[rank]
            if signals:
                raise Interrupted(signals[0])
            pause()
        return heard

    def _report(self, key: str, rank: int) -> Message:
        return _message(self.store.get(f"{key}-{self.attempt}-{rank}")) or {}

    def _refuse_other(self, ask: Ask, before: Ask | None, others: list[Ask]) -> None:
        """Raises ConfigurationError for a rank that does not belong to this run, or is there twice."""
        lead = self.own
        if before is not None:
            raise ConfigurationError(f"two processes say that they are rank {ask.rank}: {before} and {ask}.")
        if ask.size != lead.size:
            raise ConfigurationError(
                f"{ask} says that there are {ask.size} ranks, and rank 0 that there are {lead.size}. "
                "Start all ranks by the same command."
            )
        if ask.software != lead.software:
            raise ConfigurationError(
                f"{ask} has {ask.software}, and rank 0 {lead.software}. Install the same versions."
            )
        if ask.words != lead.words:
            raise ConfigurationError(
                f"{ask} was started with another command line than rank 0. Start all ranks by the same command."
            )
        for other in (lead, *others) if self.world.by == PLAIN.name else ():
            if (other.machine, other.local_rank) == (ask.machine, ask.local_rank):
                raise ConfigurationError(
                    f"{other} and {ask} are both local rank {ask.local_rank} of their machine. "
                    "Set LOCAL_RANK and LOCAL_WORLD_SIZE where several ranks share a machine."
                )


class Follower:
    """The part of any other rank. ``seconds``: how long it waits for rank 0."""

    def __init__(self, world: World, words: Sequence[str], store: RankStore, *, seconds: float):
        self._world, self._store, self._seconds = world, store, seconds
        self.own = Ask.of(world, words)

    def order(self) -> Message:
        """Rank 0's answer: the run, or with ``ends`` that there is none."""
        return self._wait(f"answer-{self.own.number}", (f"ask-{self.own.rank}", json.dumps(asdict(self.own))))

    def confirm(self, order: Message, **seen: Any) -> Message:
        """Report what this rank has seen of the run, and return rank 0's word on whether it begins."""
        key = f"{order['attempt']}-{self.own.rank}"
        report = json.dumps({"number": self.own.number, "host": self.own.host, **seen})
        word = order if "ends" in order else self._wait(f"go-{order['attempt']}", (f"seen-{key}", report))
        if "ends" in word:
            self._store.set(f"left-{key}", report)
        return word

    def _wait(self, key: str, repeated: tuple[str, str]) -> Message:
        """The message of this key, as soon as there is one; what is ``repeated`` is set until then."""
        deadline = time.monotonic() + self._seconds
        self._store.set(*repeated)
        while (answer := _message(self._store.get(key))) is None:
            if time.monotonic() > deadline:
                raise ConfigurationError(
                    f"rank {self.own.rank}: rank 0 has not answered within launcher.start_timeout={self._seconds:g} "
                    "seconds. Every rank must run this command, with the same MASTER_ADDR and MASTER_PORT.",
                    key="launcher.start_timeout",
                )
            pause()
            if self._store.get(repeated[0]) != repeated[1]:  # the store is newer
                self._store.set(*repeated)
        return answer


def _message(text: str | None) -> Message | None:
    """A message from the store; anything else counts as none."""
    try:
        content = json.loads(text or "null")
    except ValueError:
        return None
    return content if isinstance(content, dict) else None


def _ask(text: str | None) -> Ask | None:
    content = _message(text) or {}
    kinds = {part.name: part.type for part in fields(Ask)}
    wrong = content.keys() != kinds.keys() or any(type(content[name]) is not kind for name, kind in kinds.items())
    return None if wrong else Ask(**content)
