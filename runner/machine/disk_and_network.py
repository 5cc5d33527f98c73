"""What this machine's disks and network have cost its processes, as Linux counts it."""

import os
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

PRESSURE = Path("/proc/pressure/io")
COUNTERS = Path("/proc/self/net/snmp")
INTERFACES = Path("/sys/class/net")


class Segments(NamedTuple):
    """TCP segments of this machine, or network namespace. ``resent``: those that were sent again."""

    sent: int = 0
    resent: int = 0


def disk_seconds() -> float:
    """Seconds for which at least one process of this machine waited for a disk; 0 if the kernel does not count them.

    Source: https://docs.kernel.org/accounting/psi.html.
    """
    with suppress(OSError, ValueError, IndexError):
        some = PRESSURE.read_text().splitlines()[0]
        return int(some.rpartition("total=")[2]) / 1e6
    return 0.0


def segments() -> Segments:
    """Source: https://docs.kernel.org/networking/snmp_counter.html."""
    with suppress(OSError, ValueError, KeyError):
        names, values = (line.split() for line in COUNTERS.read_text().splitlines() if line.startswith("Tcp:"))
        found = dict(zip(names, values, strict=True))
        return Segments(int(found["OutSegs"]), int(found["RetransSegs"]))
    return Segments()


def link_speed() -> int:
    """Mbit/s of the interface to the run's other machines, which agents name to their ranks; 0 if it is unknown."""
    with suppress(OSError, ValueError, KeyError):
        return max(0, int((INTERFACES / os.environ["GLOO_SOCKET_IFNAME"] / "speed").read_text()))
    return 0
