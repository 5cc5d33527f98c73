"""``manyheads queue``: the runs that wait for a worker and those that are being run, in their order."""

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

from manyheads.launchers.companions.room.claims import Claim, clock, named, processes
from manyheads.launchers.companions.room.registry import current_claims
from manyheads.launchers.flags.queue.entries import QueueEntry, RunQueue, has_ended, mark, status_of
from manyheads.launchers.launcher_option import FREE
from manyheads.runner.errors import ConfigurationError
from manyheads.runner.machine import invocation
from manyheads.runner.machine.console import print_columns
from manyheads.runner.run.answer import Answer
from manyheads.runner.run.files import is_locked
from manyheads.runner.run.frozen import read_frozen
from manyheads.runner.run.run_folder import RunFolder

HELP = "list what train --queue has queued: order, who runs what, why a run waits; cancel or move a run"


def add(queue: RunQueue, run: RunFolder) -> None:
    """Put a run that was cancelled or interrupted behind the others. Raises ConfigurationError, OSError."""
    if not run.is_own():
        raise _refused(run, "is not a run of yours")
    if any(entry.path == str(run.path) for entry in queue.entries()):
        raise _refused(run, "is in the queue already")
    if has_ended(run):
        raise _refused(run, f"has ended: {status_of(run)}")
    if is_locked(run.config):
        raise _refused(run, "is being run by another process")
    if read_frozen(run.config, only=("launcher",)).get("launcher.devices") != FREE:
        raise _refused(run, f"was started without launcher.devices={FREE}, so it would not wait for room. Resume it")
    queue.add(run)


def cancel(queue: RunQueue, run: RunFolder) -> None:
    """Take a run out of the queue; one that is being run is stopped by its worker. Raises as ``add``."""
    if not (entry := _entry(queue, run)).is_taken and status_of(run) == "queued":
        mark(run, "interrupted")
    queue.remove(entry)


def move_first(queue: RunQueue, run: RunFolder) -> None:
    """Let a run that waits be the next one. Raises as ``add``."""
    if (entry := _entry(queue, run)).is_taken:
        raise _refused(run, "has been taken by a worker, so it is ahead of those that wait")
    queue.move_first(entry)


def _entry(queue: RunQueue, run: RunFolder) -> QueueEntry:
    if (entry := next((entry for entry in queue.entries() if entry.path == str(run.path)), None)) is None:
        raise _refused(run, f"is not in the queue; `{invocation.command('queue')}` lists what is")
    return entry


def _refused(run: RunFolder, why: str) -> ConfigurationError:
    return ConfigurationError(f"{run} {why}.", key="run")


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
        reason = _reason(entry, claim, claims, ahead)
        ahead += [] if runs else [str(entry.run)]
        position, pid = None if runs else len(ahead), None if claim is None else claim.pid
        devices = [] if claim is None else [*claim.devices]
        listed.append(QueuePlace(str(entry.run), entry.since, position, pid, devices, reason))
    return listed


def _reason(entry: QueueEntry, claim: Claim | None, claims: Sequence[Claim], ahead: Sequence[str]) -> str:
    if claim is not None and claim.devices:
        return f"runs on {named(claim.kind, claim.devices)}, process {claim.pid}, since {clock(claim.since)}"
    if claim is not None:
        from manyheads.launchers.companions.room.waiting import waits_for  # slow

        return waits_for(claim, claims, processes(claim.among) if claim.kind == "gpu" else {})
    if entry.is_taken:
        return "a worker is starting it"
    return f"behind {ahead[-1]}" if ahead else "waits for a worker"


CHANGES = {"cancel": cancel, "first": move_first, "add": add}


@dataclass(frozen=True)
class QueueState(Answer):
    """The queue of the working directory."""

    runs: list[QueuePlace]

    def show(self) -> None:
        if not self.runs:
            print("the queue is empty")
            return
        lines = [("" if run.position is None else str(run.position), run.folder, run.reason) for run in self.runs]
        print_columns([("", "run", "status"), *lines])
        if all(run.pid is None for run in self.runs):
            print(f"no worker has taken one of them yet; start one with: {invocation.command('work')}")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    one = parser.add_mutually_exclusive_group()
    one.add_argument(
        "--cancel", metavar="RUN", help="take a run out of the queue; one that runs stops with a checkpoint"
    )
    one.add_argument("--first", metavar="RUN", help="let a run that waits be the next one")
    one.add_argument("--add", metavar="RUN", help="put a run that was cancelled or interrupted back, behind the others")


def run(arguments: argparse.Namespace) -> QueueState:
    """List the queue, after the change that is asked for. Raises ConfigurationError, OSError."""
    asked = {change: name for change in CHANGES if (name := getattr(arguments, change)) is not None}
    queue = RunQueue.created() if asked else RunQueue.existing()
    if queue is None:
        return QueueState([])
    with queue:
        for change, name in asked.items():  # at most one
            with queue.turn():
                CHANGES[change](queue, RunFolder(name))
        return QueueState(places(queue))
