"""launcher.devices=free: a run waits for its turn, and is then bound to the devices that it got."""

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from manyheads.launchers import warm_server
from manyheads.launchers.companions import Accompanied
from manyheads.launchers.companions.room.claims import (
    Claim,
    grant,
    holders,
    named,
    position,
    processes,
    queue,
    shared_with,
)
from manyheads.launchers.companions.room.leasing import ended
from manyheads.launchers.companions.room.registry import LOCAL, Lease, Registry, is_local
from manyheads.launchers.environment import variables_set
from manyheads.launchers.sweep.devices import on_cores
from manyheads.runner.errors import ConfigurationError, Interrupted, WaitExpired, warn
from manyheads.runner.machine import invocation
from manyheads.runner.option.rules import seconds
from manyheads.runner.run.progress import Work, working

POLL_SECONDS = {"core": 0.1, "gpu": 0.5}  # the driver is asked about GPUs


def waited_for(registry: Registry, run: Accompanied) -> Lease:
    """A lease of free devices, once it is this run's turn.

    Raises ConfigurationError if the folder of claims fails meanwhile, WaitExpired after launcher.wait, and Interrupted.
    """
    if is_local():
        warn(LOCAL)
    claim = Claim.of_run(run.folder.path, run.run, since=time.time())
    try:
        with registry.turn() as claims:
            lease = registry.add(claim, claims)
        try:
            if not _try(registry, lease):
                _wait(registry, lease, run)
        except BaseException:
            ended(registry, lease)
            raise
    except OSError as error:
        raise ConfigurationError.at(
            "launcher.devices", "free", f": {registry.path}: {error.strerror or error}."
        ) from error
    return lease


def _wait(registry: Registry, lease: Lease, run: Accompanied) -> None:
    warm_server.stop()  # it would keep torch in memory meanwhile
    claim, limit = lease.claim, seconds(run.run.launcher.wait)
    until = None if limit is None else time.monotonic() + limit
    with working(f"waiting for {_needed(claim)}") as work:
        while not _try(registry, lease, work):
            if run.signals:
                raise Interrupted(run.signals[0])
            if until is not None and time.monotonic() > until:
                raise _expired(run, work.what)
            time.sleep(POLL_SECONDS[claim.kind])


def _expired(run: Accompanied, status: str) -> WaitExpired:
    again = f"Resume it later with: {invocation.command('resume', run.folder)}" if run.trains else "Try again later."
    return WaitExpired.at("launcher.wait", run.run.launcher.wait, f" is over, and the run is still {status}. {again}")


def _needed(claim: Claim) -> str:
    if claim.count == len(claim.among):
        return named(claim.kind, claim.among)
    return f"{claim.count} of {named(claim.kind, claim.among)}"


def _try(registry: Registry, lease: Lease, work: Work | None = None) -> bool:
    """Whether the run now has its devices; else ``work`` says what it waits for."""
    claim = lease.claim
    outside = processes(claim.among) if claim.kind == "gpu" else {}
    with registry.turn() as claims:
        devices = grant(claim, claims, occupied=outside)
        if devices is not None:
            lease.write(claim.holding(devices))
            return True
    if work is not None and (status := waits_for(claim, claims, outside)) != work.what:
        work.next(status)
    return False


def waits_for(claim: Claim, claims: Sequence[Claim], outside: dict[str, list[int]]) -> str:
    """What a run waits for, its position in the queue, and who holds what."""
    ahead = queue(claims, claim)
    parts = [f"waiting for {_needed(claim)}", f"{position(len(ahead))} in the queue"]
    by_runs: dict[tuple[int, ...], list[str]] = {}
    runs = holders(claims, claim)
    for device, using in runs.items():
        if using:
            by_runs.setdefault(tuple(other.number for other in using), []).append(device)
    for devices in by_runs.values():
        parts.append(f"{named(claim.kind, devices)}: {shared_with({devices[0]: runs[devices[0]]})}")
    for device, pids in outside.items():
        if not runs[device]:
            parts.append(f"{named(claim.kind, [device])}: {', '.join(f'process {pid}' for pid in pids)}")
    return "; ".join(parts)


@contextmanager
def bound_to(claim: Claim) -> Iterator[None]:
    """A context in which this process, and ranks that it starts, see these devices only."""
    if claim.kind == "gpu":
        with variables_set({"CUDA_VISIBLE_DEVICES": ",".join(claim.devices)}):
            yield
    else:
        with on_cores([int(core) for core in claim.devices]):
            yield
