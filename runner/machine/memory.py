"""How much memory there is."""

from contextlib import suppress
from pathlib import Path

import psutil

LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")


def memory_bytes() -> int:
    """This machine's memory, or what its container may take of it."""
    found = psutil.virtual_memory().total
    for path in LIMITS:
        with suppress(OSError, ValueError):  # no container, or "max"
            found = min(found, int(Path(path).read_text()))
    return found
