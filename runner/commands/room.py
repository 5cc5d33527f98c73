"""``manyheads room``: which devices of this machine are in use, by which runs, and which runs wait for some."""

import argparse
from dataclasses import dataclass
from typing import Annotated

from manyheads.launchers.companions.room.claims import Claim, Kind, boot_id, described, named, processes, visible
from manyheads.launchers.companions.room.registry import LOCAL, current_claims, is_local
from manyheads.runner.machine.console import print_columns
from manyheads.runner.run.answer import Answer

HELP = "show which devices of this machine your runs use, and which runs wait for some"


@dataclass(frozen=True)
class DeviceUser:
    """A run that holds a device, or waits."""

    run: Annotated[str, "its folder"]
    pid: Annotated[int, "of the process that started it, as that sees itself"]
    since: Annotated[float, "when it asked for devices, in seconds since 1970"]


@dataclass(frozen=True)
class UsedDevice:
    """A device of this machine, and what uses it."""

    kind: Kind
    device: Annotated[str, "the UUID of a GPU, or the number of a core"]
    runs: list[DeviceUser]
    processes: Annotated[list[int], "other processes on a GPU, as its driver reports them"]


@dataclass(frozen=True)
class QueuedRun(DeviceUser):
    """A run that waits for devices."""

    kind: Kind
    count: Annotated[int, "how many it needs"]
    among: Annotated[list[str], "those that it may use"]


@dataclass(frozen=True)
class DeviceUsage(Answer):
    """The devices that a run started here may use, or that runs of this user hold, and the queue for them."""

    devices: list[UsedDevice]
    queue: Annotated[list[QueuedRun], "the first one is served first"]
    folder: Annotated[str | None, "where runs say which devices they use; null if none has done so"]
    notes: list[str]

    def show(self) -> None:
        devices: dict[tuple[Kind, str], list[str]] = {}
        for device in self.devices:
            users = [*map(_user, device.runs), *(f"process {pid}" for pid in device.processes)]
            devices.setdefault((device.kind, ", ".join(users) or "free"), []).append(device.device)
        print_columns([("devices", "used by"), *((named(kind, some), by) for (kind, by), some in devices.items())])
        for number, waiting in enumerate(self.queue, 1):
            needed = f"{waiting.count} of {named(waiting.kind, waiting.among)}"
            print(f"waits, {number}: {_user(waiting)}, for {needed}")
        for note in self.notes:
            print(note)


def _user(run: DeviceUser) -> str:
    return described(run.run, run.pid, run.since)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command has no arguments."""


def run(arguments: argparse.Namespace) -> DeviceUsage:
    """Read the claims of all runs. Raises ConfigurationError if others could have written them."""
    claims, folder = current_claims()
    return examined(claims, None if folder is None else str(folder))


def examined(claims: list[Claim], folder: str | None) -> DeviceUsage:
    """What uses the devices. ``claims``: of all runs."""
    boot = boot_id()
    here = [claim for claim in claims if claim.kind == "gpu" or claim.boot == boot]
    devices = [*_devices("gpu", here), *_devices("core", here)]
    waiting = [claim for claim in here if not claim.devices and claim.count]
    queue = [QueuedRun(c.run, c.pid, c.since, c.kind, c.count, [*c.among]) for c in waiting]
    return DeviceUsage(devices, queue, folder, [LOCAL] if is_local() else [])


def _devices(kind: Kind, claims: list[Claim]) -> list[UsedDevice]:
    held = [device for claim in claims if claim.kind == kind for device in claim.devices]
    names = list(dict.fromkeys([*visible(kind), *held]))
    outside = processes(names) if kind == "gpu" else {}
    devices = []
    for name in sorted(names, key=int) if kind == "core" else names:
        users = [DeviceUser(c.run, c.pid, c.since) for c in claims if c.kind == kind and name in c.devices]
        devices.append(UsedDevice(kind, name, users, [] if users else outside.get(name, [])))
    return devices
