"""A control group whose processes read slowly from a disk; of version 1 or 2, as root."""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

GROUPS = {  # where such groups may be created, with the file for the limit, and its content
    Path("/sys/fs/cgroup/blkio"): ("blkio.throttle.read_bps_device", "{device} {rate}"),
    Path("/sys/fs/cgroup"): ("io.max", "{device} rbps={rate}"),
}


@contextmanager
def slow_disk(folder: Path, *, rate: int) -> Iterator[Path]:
    """The group's folder. ``rate``: bytes per second that its processes can read from the disk of ``folder``."""
    group = next((made for parent in GROUPS if (made := _made(parent, folder, rate))), None)
    if group is None:
        pytest.skip("no control group that limits this disk can be created: run the tests as root, where root may")
    try:
        yield group
    finally:
        group.rmdir()


def _made(parent: Path, folder: Path, rate: int) -> Path | None:
    file, limit = GROUPS[parent]
    group = parent / f"manyheads-test-{os.getpid()}"
    with suppress(OSError):
        group.mkdir()
        try:
            (group / file).write_text(limit.format(device=_device(folder), rate=rate))
        except OSError:
            group.rmdir()
        else:
            return group
    return None


def _device(folder: Path) -> str:
    """The number of the disk, not of its partition, as in 254:0."""
    status = folder.stat().st_dev
    own = Path(f"/sys/dev/block/{os.major(status)}:{os.minor(status)}")
    disk = own.resolve().parent if (own / "partition").exists() else own
    return (disk / "dev").read_text().strip()
