"""Devices and the runs that use them, as people read them."""

import time
from collections.abc import Iterable, Mapping, Sequence

from manyheads.launchers.companions.room.claims import Claim, Kind
from manyheads.runner.errors import printable

ORDINALS = {1: "st", 2: "nd", 3: "rd"}


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
