"""Who holds which devices of this machine, who waits for some, and who is next."""

import os
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, Self

from manyheads.runner.errors import printable
from manyheads.runner.machine import hardware
from manyheads.runner.machine.gpus import asked, session
from manyheads.runner.option.run_config import RunConfig

Kind = Literal["gpu", "core"]
BOOT = Path("/proc/sys/kernel/random/boot_id")
ORDINALS = {1: "st", 2: "nd", 3: "rd"}


@dataclass(frozen=True)
class Claim:
    """A run that holds devices, or without ``devices`` waits for ``count`` of those in ``among``.

    ``run``: its folder; ``pid``: of its parent, as that sees itself; ``since``: when it asked for them, in seconds
    since 1970. Devices are UUIDs of GPUs, or numbers of cores of the machine with this ``boot`` id. ``number``: its
    position in the order in which all claims were made.
    """

    run: str
    pid: int
    since: float
    boot: str
    kind: Kind
    count: int
    among: tuple[str, ...]
    devices: tuple[str, ...] = ()
    number: int = 0

    @classmethod
    def of_run(cls, folder: Path, run: RunConfig, *, since: float) -> Self:
        """The claim of a run that is about to start, on the GPUs or cores that this process may use."""
        kind: Kind = "gpu" if run.on_gpus else "core"
        among = visible(kind)
        needed = run.gpus_here if run.on_gpus else run.launcher.nproc_per_node * run.launcher.threads_per_rank
        return cls(str(folder.absolute()), os.getpid(), since, boot_id(), kind, min(needed, len(among)), among)

    @classmethod
    def from_json(cls, content: Any, *, number: int) -> Self:
        """The claim in parsed JSON. Raises TypeError or KeyError for anything else."""
        lists = {key: tuple(map(str, content[key])) for key in ("among", "devices")}
        return replace(cls(**{**content, **lists}), number=number)

    def holding(self, devices: Sequence[str]) -> Self:
        """This claim once it holds these devices."""
        return replace(self, devices=tuple(devices))


def visible(kind: Kind) -> tuple[str, ...]:
    """The devices that a run started here may use."""
    if kind == "gpu":
        return tuple(hardware.gpu_ids())
    return tuple(map(str, hardware.bound_cores()))


def boot_id() -> str:
    """What tells this machine's cores from those of others; containers on one machine have the same."""
    try:
        return BOOT.read_text().strip()
    except OSError:  # not Linux
        return ""


def holders(claims: Iterable[Claim], claim: Claim) -> dict[str, list[Claim]]:
    """By device of ``claim.among``, the other claims that hold it."""
    others = [other for other in claims if _compete(other, claim)]
    return {device: [other for other in others if device in other.devices] for device in claim.among}


def queue(claims: Iterable[Claim], claim: Claim) -> list[Claim]:
    """The claims that wait for devices which ``claim`` may use too, and were made before it, in their order."""
    waiting = [other for other in claims if _compete(other, claim) and not other.devices and other.count]
    return [other for other in waiting if other.number < claim.number and {*other.among} & {*claim.among}]


def _compete(other: Claim, claim: Claim) -> bool:
    is_here = claim.kind == "gpu" or other.boot == claim.boot
    return is_here and other.kind == claim.kind and other.number != claim.number


def grant(claim: Claim, claims: Sequence[Claim], occupied: Iterable[str] = ()) -> tuple[str, ...] | None:
    """The devices for a claim that waits; None if it has to wait longer.

    ``occupied``: devices on which there are processes, whether of runs or of others. Claims made earlier set aside what
    is free of the devices that they may use, so that one which needs many gets them: later ones would take each as it
    becomes free. A claim does not set anything aside while others than runs occupy what it lacks.
    """
    runs = holders(claims, claim)
    occupied = {device for device in occupied if not runs[device]}
    free = [device for device in claim.among if not runs[device] and device not in occupied]
    for earlier in queue(claims, claim):
        if len({*earlier.among} - occupied) >= earlier.count:
            aside = [device for device in free if device in earlier.among][: earlier.count]
            free = [device for device in free if device not in aside]
    return tuple(free[: claim.count]) if len(free) >= claim.count else None


def least_used(claim: Claim, claims: Sequence[Claim]) -> tuple[str, ...]:
    """The devices of a run that does not wait: the first GPUs, or the cores on which the fewest other runs count."""
    runs = holders(claims, claim)
    devices = claim.among if claim.kind == "gpu" else sorted(claim.among, key=lambda core: len(runs[core]))
    return tuple(devices[: claim.count])


def processes(uuids: Iterable[str]) -> dict[str, list[int]]:
    """The ids of the processes that compute on each of these GPUs, also of other users; without idle GPUs.

    A driver reports ids of its own PID namespace, and within some containers none.
    """
    running = {}
    with session() as nvml:
        for uuid in uuids if nvml is not None else ():
            handle = asked(nvml.nvmlDeviceGetHandleByUUID, uuid)
            on_it = asked(nvml.nvmlDeviceGetComputeRunningProcesses, handle) if handle is not None else None
            if on_it:
                running[uuid] = sorted(process.pid for process in on_it)
    return running


def named(kind: Kind, devices: Iterable[str]) -> str:
    """Devices in few words: cores 0-3 and 8, or GPU-5c3a1d and GPU-77e0b2."""
    devices = list(devices)
    if kind == "gpu":
        return ", ".join(device[:12] for device in devices)
    return f"core{'s' * (len(devices) != 1)} {', '.join(_spans(sorted(map(int, devices))))}"


def _spans(numbers: Sequence[int]) -> list[str]:
    starts = [number for number in numbers if number - 1 not in numbers]
    ends = [number for number in numbers if number + 1 not in numbers]
    return [str(start) if start == end else f"{start}-{end}" for start, end in zip(starts, ends, strict=True)]


def described(run: str, pid: int, since: float) -> str:
    """A run that holds or waits for devices; ``run``, ``pid``, ``since``: as of a Claim."""
    return f"{printable(run)} (process {pid}, since {clock(since)})"


def shared_with(runs: Mapping[str, Sequence[Claim]]) -> str:
    """The runs that hold devices, each once."""
    claims = {claim.number: claim for device in runs.values() for claim in device}
    return ", ".join(described(claim.run, claim.pid, claim.since) for claim in claims.values())


def clock(seconds: float) -> str:
    """A time of today, or a date before."""
    then, now = time.localtime(seconds), time.localtime()
    return time.strftime("%H:%M:%S" if then[:3] == now[:3] else "%Y-%m-%d %H:%M", then)


def position(ahead: int) -> str:
    """A position in a queue: 1st, 2nd, 11th."""
    number = ahead + 1
    return f"{number}{'th' if number % 100 in (11, 12, 13) else ORDINALS.get(number % 10, 'th')}"
