"""The queue as people see it: who runs what, and why a run waits."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

from manyheads.launchers.companions.room.claims import Claim
from manyheads.launchers.companions.room.snapshot import current_claims
from manyheads.launchers.companions.room.words import clock, named
from manyheads.launchers.flags.queue.entries import QueueEntry, RunQueue


@dataclass(frozen=True)
class QueuePlace:
    """A run in the queue."""

    folder: str
    since: Annotated[float, "when it was queued, in seconds since 1970"]
    position: Annotated[int | None, "of the runs that wait, 1 is the next; null once it runs"]
    pid: Annotated[int | None, "of the process that runs it, or asks for devices for it; null if there is none"]
    devices: Annotated[list[str], "those that it uses; empty while it waits"]
    reason: Annotated[str, "why it waits, or on which devices it runs and since when"]


def places(queue: RunQueue) -> list[QueuePlace]:
    """All runs of the queue, in their order. Raises ConfigurationError, OSError."""
    with queue.turn():
        entries, (claims, _) = [*queue.entries()], current_claims()
    claimed = {claim.run: claim for claim in claims}
    listed: list[QueuePlace] = []
    ahead: list[str] = []
    for entry in entries:
        claim = claimed.get(entry.path)
        runs = claim is not None and bool(claim.devices)
        reason = _running(claim) if claim is not None and runs else _waiting(entry, claim, claims, ahead)
        ahead += [] if runs else [str(entry.run)]
        position, pid = None if runs else len(ahead), None if claim is None else claim.pid
        devices = [] if claim is None else [*claim.devices]
        listed.append(QueuePlace(str(entry.run), entry.since, position, pid, devices, reason))
    return listed


def _running(claim: Claim) -> str:
    return f"runs on {named(claim.kind, claim.devices)}, process {claim.pid}, since {clock(claim.since)}"


def _waiting(entry: QueueEntry, claim: Claim | None, claims: Sequence[Claim], ahead: Sequence[str]) -> str:
    if claim is not None:
        from manyheads.launchers.companions.room.others import processes  # of GPUs
        from manyheads.launchers.companions.room.waiting import waits_for  # slow

        return waits_for(claim, claims, processes(claim.among) if claim.kind == "gpu" else {})
    if entry.is_taken:
        return "a worker is starting it"
    return f"behind {ahead[-1]}" if ahead else "waits for a worker"
