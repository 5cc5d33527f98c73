"""The memory that processes share by way of files, by default only 64 MB in a container."""

import shutil
from pathlib import Path

from rich.filesize import decimal

SHARED_MEMORY = Path("/dev/shm")


def size() -> str | None:
    """How much it holds, in words; None where there is no such place."""
    try:
        return decimal(shutil.disk_usage(SHARED_MEMORY).total)
    except OSError:
        return None


def too_small() -> str:
    """What to say and do when loader processes have no room in shared memory."""
    found = size()
    where = f"{SHARED_MEMORY}, which holds {found} in all" if found else "shared memory"
    return (
        f"loader processes pass batches through {where}, and it is full. Set data.num_workers=0, or enlarge it "
        "(docker run --shm-size=8g)."
    )
