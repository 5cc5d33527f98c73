"""What files take on the disk."""

from contextlib import suppress
from pathlib import Path
from stat import S_ISREG

from manyheads.runner.errors import ConfigurationError
from manyheads.runner.run.folder import Folder, Inode


def disk_use(path: Path) -> int:
    """Bytes of a file, or of all files below a folder; a file of several names counts once, and links as nothing."""
    with Folder(path.parent) as above:
        found = [above.status(path.name)]
        with suppress(ConfigurationError, NotADirectoryError), above.child(path.name) as folder:
            found = [status for _, status in folder.walk()]
    return sum({Inode.of(each): each.st_size for each in found if S_ISREG(each.st_mode)}.values())


def size_in_words(size: float) -> str:
    """``3.2 GB``."""
    for unit in ("B", "kB", "MB", "GB"):
        if size < 999.5:
            break
        size, unit = size / 1000, {"B": "kB", "kB": "MB", "MB": "GB", "GB": "TB"}[unit]
    return f"{size:.0f} {unit}" if unit == "B" or size >= 99.95 else f"{size:.1f} {unit}"
