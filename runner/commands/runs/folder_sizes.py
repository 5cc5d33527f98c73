"""What files take on the disk."""

import os
from pathlib import Path


def disk_use(path: Path) -> int:
    """Bytes of a file, or of all files below a folder; a file of several names counts once, and links as nothing."""
    seen: dict[tuple[int, int], int] = {}
    paths = [Path(parent, name) for parent, _, names in os.walk(path) for name in names] if path.is_dir() else [path]
    for each in paths:
        status = os.lstat(each)
        if not each.is_symlink():
            seen[status.st_dev, status.st_ino] = status.st_size
    return sum(seen.values())


def size_in_words(size: float) -> str:
    """``3.2 GB``."""
    for unit in ("B", "kB", "MB", "GB"):
        if size < 999.5:
            break
        size, unit = size / 1000, {"B": "kB", "kB": "MB", "MB": "GB", "GB": "TB"}[unit]
    return f"{size:.0f} {unit}" if unit == "B" or size >= 99.95 else f"{size:.1f} {unit}"
