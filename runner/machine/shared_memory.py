"""The memory that processes share by way of files, by default only 64 MB in a container."""

import shutil
from pathlib import Path

from rich.filesize import decimal

SHARED_MEMORY = Path("/dev/shm")


def too_small() -> str:
    """What to say and do when loader processes have no room in shared memory."""
    try:
        size = f"{SHARED_MEMORY}, which holds {decimal(shutil.disk_usage(SHARED_MEMORY).total)} in all"
    except OSError:
        size = "shared memory"
    return (
        f"loader processes hand batches over in {size}, and there is no room left. Set data.num_workers=0, or make it "
        "larger (docker run --shm-size=8g)."
    )
