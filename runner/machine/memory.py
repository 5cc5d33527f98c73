"""The memory of this machine."""

import shutil
from contextlib import suppress
from pathlib import Path

import psutil
from rich.filesize import decimal

LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")


def memory_bytes() -> int:
    """This machine's memory in bytes, or its container's limit."""
    found = psutil.virtual_memory().total
    for path in LIMITS:
        with suppress(OSError, ValueError):  # no container, or "max"
            found = min(found, int(Path(path).read_text()))
    return found


SHARED_MEMORY = Path("/dev/shm")


def size() -> str | None:
    """The size of SHARED_MEMORY, in words; None if it does not exist."""
    try:
        return decimal(shutil.disk_usage(SHARED_MEMORY).total)
    except OSError:
        return None
