"""How much memory there is."""

import shutil
from contextlib import suppress
from pathlib import Path

import psutil
from rich.filesize import decimal

LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")


def memory_bytes() -> int:
    """This machine's memory, or what its container may take of it."""
    found = psutil.virtual_memory().total
    for path in LIMITS:
        with suppress(OSError, ValueError):  # no container, or "max"
            found = min(found, int(Path(path).read_text()))
    return found


SHARED_MEMORY = Path("/dev/shm")


def size() -> str | None:
    """How much it holds, in words; None where there is no such place."""
    try:
        return decimal(shutil.disk_usage(SHARED_MEMORY).total)
    except OSError:
        return None
