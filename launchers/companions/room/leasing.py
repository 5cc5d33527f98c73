"""A run takes its devices before its ranks start: at once, or with launcher.devices=free when they are free."""

import os
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from manyheads.launchers.companions import Accompanied
from manyheads.launchers.companions.room.claims import Claim, holders, least_used, named, processes, shared_with
from manyheads.launchers.companions.room.registry import SUFFIX, Lease, Registry
from manyheads.runner.errors import ConfigurationError, warn
from manyheads.runner.loop.rank_process import HELD


@contextmanager
def leased(run: Accompanied) -> Iterator[None]:
    """A context in which the run holds devices, by locks that end with the last of its processes.

    Raises ConfigurationError if launcher.devices=free cannot tell which are free, WaitExpired if too few became free in
    time, and Interrupted.
    """
    is_free = run.run.launcher.takes_free_devices
    run.variables[HELD] = ""  # not what a run has whose rank may have started this one
    with ExitStack() as stack:
        try:
            registry = stack.enter_context(Registry.created())
            lease = None if is_free else _taken(registry, run)
        except (OSError, ConfigurationError) as error:
            if is_free:
                raise ConfigurationError.at("launcher.devices", "free", f": {_reason(error)}") from error
            warn(f"other runs on this machine don't see which devices this one uses: {_reason(error)}")
            yield
            return
        if lease is None:
            from manyheads.launchers.companions.room.waiting import bound_to, waited_for  # few runs wait

            lease = waited_for(registry, run)
            stack.enter_context(bound_to(lease.claim))
        run.variables[HELD] = str(lease.path)
        try:
            yield
        finally:
            ended(registry, lease)


def _reason(error: OSError | ConfigurationError) -> str:
    if not isinstance(error, OSError):
        return str(error)
    path = Path(error.filename or "the folder of leases")
    return f"{path.parent if path.suffix == SUFFIX else path}: {error.strerror or error}."


def ended(registry: Registry, lease: Lease) -> None:
    """End a lease; its file is removed unless a rank still runs."""
    owner = lease.claim.pid
    if os.getpid() != owner:  # a fork, which has no part in it
        return
    lease.end()
    try:
        with registry.turn():
            pass
    except OSError as error:  # the next run removes it
        warn(f"{registry.path}: {error.strerror or error}")


def _taken(registry: Registry, run: Accompanied) -> Lease:
    claim = Claim.of_run(run.folder.path, run.run, since=time.time())
    with registry.turn() as claims:
        lease = registry.add(claim.holding(least_used(claim, claims)), claims)
    if run.trains:
        _say_with_whom(lease.claim, claims)
    return lease


def _say_with_whom(claim: Claim, claims: Sequence[Claim]) -> None:
    """Warn of the runs, and of other programs on GPUs, with which a run shares its devices."""
    runs = holders(claims, claim)
    if shared := {device: runs[device] for device in claim.devices if runs[device]}:
        warn(f"this run shares {named(claim.kind, shared)} with {shared_with(shared)}")
    if claim.kind == "gpu":
        for device, ids in processes(device for device in claim.devices if device not in shared).items():
            warn(f"other programs compute on {named('gpu', [device])}: process {', '.join(map(str, ids))}")
